"""The pure parts of the Celery border: flags of a node, addresses, outcomes, delays, wishes, the table of runs."""

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from billiard.exceptions import Terminated, WorkerLostError
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.worker.request import Request

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.app import broker_address, redis_url, signal_name
from parsync_redis.integration.publish import delay_of
from parsync_redis.model.address import parse_service
from parsync_redis.model.place import Place
from parsync_redis.settings import Settings, load_rules, node_options
from parsync_redis.store import connect
from parsync_redis.worker.node import node_spec, pairs, place_of
from parsync_redis.worker.request import outcome_of, request_class
from parsync_redis.worker.runs import Run, Runs


def test_pairs_are_name_and_value_of_which_the_value_may_hold_an_equals_sign() -> None:
    assert pairs("--parsync-label", ("a=1", "b=x=y")) == {"a": "1", "b": "x=y"}
    assert pairs("--parsync-label", None) == {}


@pytest.mark.parametrize(("words", "why"), [(("a",), "NAME=VALUE"), (("a=1", "a=2"), "a was given before, as '1'")])
def test_pairs_that_are_none_or_given_twice_are_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        pairs("--parsync-label", words)


def worker(pool: Any = PreforkPool, **more: Any) -> Any:
    return SimpleNamespace(
        **{"pool_cls": pool, "concurrency": 3, "max_concurrency": None, "hostname": "celery@h"} | more
    )


def test_a_node_is_by_default_named_as_its_worker_and_has_a_slot_for_each_process() -> None:
    spec = node_spec(worker(), {"parsync": True}, {})
    assert (spec.name, spec.offer.text, spec.score) == ("celery@h", "slots=3", 1.0)
    assert node_spec(worker(max_concurrency=8), {}, {}).offer.slots == 8
    assert node_spec(worker(SoloPool), {}, {}).offer.slots == 1


def test_a_node_offers_what_its_flags_say() -> None:
    flags = {
        "parsync_node": "n1",
        "parsync_slots": 4,
        "parsync_score": -2.5,
        "parsync_label": ("zone=a",),
        "parsync_resource": ("mem=2KiB",),
    }
    spec = node_spec(worker(), *node_options(flags))
    assert (spec.name, spec.offer.text, spec.score) == ("n1", "slots=4 mem=2048 zone:a", -2.5)


@pytest.mark.parametrize(
    "flags",
    [
        {"parsync_node": "a b"},
        {"parsync_node": ""},
        {"parsync_slots": 0},
        {"parsync_slots": 10_001},
        {"parsync_score": float("nan")},
        {"parsync_score": float("inf")},
        {"parsync_label": ("=1",)},
        {"parsync_resource": ("mem=-1",)},
    ],
)
def test_flags_without_sense_are_refused(flags: dict[str, Any]) -> None:
    found, said = node_options(flags)
    assert found, "it is a node, or wants to be"
    with pytest.raises(InvalidInput):
        node_spec(worker(), found, said)


def test_a_worker_without_flags_is_no_node() -> None:
    none = {"parsync": None, "parsync_node": None, "parsync_label": (), "parsync_slots": None}
    assert node_options(none) == ({}, {})


def test_a_node_offers_what_its_environment_says_and_flags_go_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PARSYNC_NODE": "1",
        "PARSYNC_NODE_NAME": "n1",
        "PARSYNC_NODE_SLOTS": "4",
        "PARSYNC_NODE_SCORE": "-2.5",
        "PARSYNC_NODE_LABELS": "zone=a, kind=b",
        "PARSYNC_NODE_RESOURCES": "mem=2KiB",
        "PARSYNC_NODE_ONLY": "yes",
    }.items():
        monkeypatch.setenv(name, value)
    found, said = node_options({})
    spec = node_spec(worker(), found, said)
    assert (spec.name, spec.offer.text, spec.score) == ("n1", "slots=4 mem=2048 kind:b zone:a", -2.5)
    assert found["parsync_only"] is True
    assert node_spec(worker(), *node_options({"parsync_slots": 7})).offer.slots == 7
    monkeypatch.setenv("PARSYNC_NODE", "0")
    assert node_options({}) == ({}, {}), "said to be none"
    assert node_options({"parsync_slots": 7})[0]["parsync_slots"] == 7


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("PARSYNC_NODE", "maybe", "PARSYNC_NODE='maybe' is not valid: it must be 1 or 0"),
        ("PARSYNC_NODE_SLOTS", "many", "PARSYNC_NODE_SLOTS='many' is not valid: it must be a whole number"),
        ("PARSYNC_NODE_SLOTS", "0", "PARSYNC_NODE_SLOTS: slots=0 is not valid"),
        ("PARSYNC_NODE_SCORE", "inf", "PARSYNC_NODE_SCORE inf is not valid"),
        ("PARSYNC_NODE_LABELS", "zone", "PARSYNC_NODE_LABELS 'zone' is not valid: it must be NAME=VALUE"),
        ("PARSYNC_NODE_RESOURCES", "mem=much", "PARSYNC_NODE_RESOURCES: "),
    ],
)
def test_a_wrong_variable_of_a_node_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput) as refused:
        node_spec(worker(), *node_options({}))
    assert why in str(refused.value)


RULES = """
[place]
"proj.train" = { slots = 2, resources = { gpu = 1 } }
"proj.ping" = false
"proj.*" = true
"celery.chord_unlock" = { priority = 3 }
"""


def nothing() -> None:
    """A task."""


def test_rules_place_tasks_by_name_and_what_task_and_call_say_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parsync.toml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    app = Celery("ruled", broker="memory://", set_as_current=False)
    parsync = Parsync(app, url="redis://127.0.0.1:1/0")
    for name in ("proj.train", "proj.other", "proj.ping", "other"):
        app.task(name=name, shared=False)(nothing)
    app.task(name="proj.own", parsync={"slots": 3}, shared=False)(nothing)
    app.task(name="proj.never", parsync=False, shared=False)(nothing)
    wishes = {
        "proj.train": {"slots": 2, "resources": {"gpu": 1}},
        "proj.other": {},
        "proj.ping": None,
        "other": None,
        "celery.chord_unlock": {"priority": 3},
        "celery.backend_cleanup": None,
        "proj.own": {"slots": 3},
        "proj.never": None,
    }
    assert {name: parsync.wish(name, None, None) for name in wishes} == wishes
    assert parsync.wish("proj.train", None, {"slots": 5}) == {"slots": 5, "resources": {"gpu": 1}}
    assert parsync.wish("proj.train", None, False) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('place = "all"', "[place] in "),
        ('[place]\n"a" = "yes"', 'the rule [place."a"] in '),
        ('[place]\n"a" = { slot = 1 }', "unknown parsync option 'slot'"),
        ('[places]\n"a" = true', "unknown setting 'places'"),
    ],
)
def test_a_rule_without_sense_is_refused_by_its_name(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "parsync.toml").write_text(text)
    with pytest.raises(InvalidInput) as refused:
        load_rules(tmp_path / "parsync.toml")
    assert why in str(refused.value)


def test_valkeys_addresses_are_redis_addresses() -> None:
    assert Settings.load(url="valkey://h:1/2").url == "redis://h:1/2"
    assert Settings.load(url="valkeys://h:1/2").url == "rediss://h:1/2"
    assert place_of("valkey://localhost") == place_of("redis://127.0.0.1:6379/0")
    assert connect("valkeys://h:1/2").connection_pool.connection_class is redis.SSLConnection


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("redis://:pw@h:1/2", "redis://:pw@h:1/2"),
        ("valkey://h:1/2", "redis://h:1/2"),
        ("rediss://h//", "rediss://h//"),
        ("redis://a;redis://b", "redis://a"),
        ("redis+socket:///tmp/s?virtual_host=3", "unix:///tmp/s?db=3"),
        ("socket:///tmp/s", "unix:///tmp/s"),
        ("amqp://guest@localhost//", None),
        ("sentinel://h:26379", None),
    ],
)
def test_a_brokers_address_is_read_as_redis_py_reads_it(broker: str, url: str | None) -> None:
    assert redis_url(broker) == url


def test_two_addresses_are_one_place_if_server_and_database_are() -> None:
    assert place_of("redis://localhost") == place_of("redis://:pw@127.0.0.1:6379/0")
    assert place_of("redis://localhost/1") != place_of("redis://localhost/0")
    assert place_of("unix:///tmp/a?db=0") != place_of("unix:///tmp/b?db=0")


def test_a_broker_behind_sentinels_is_read_as_parsyncs_settings_say_it() -> None:
    app = Celery("behind", broker="sentinel://u:p%20w@a:1/2;sentinel://b:3/2", set_as_current=False)
    with pytest.raises(InvalidInput, match="which service is not said: set broker_transport_options"):
        broker_address(app.connection_for_write())
    app.conf.broker_transport_options = {"master_name": "m", "sentinel_kwargs": {"password": "s&"}}
    address = broker_address(app.connection_for_write())
    assert address == "sentinel://u:p%20w@a:1/2;sentinel://b:3/2?service=m&sentinel_password=s%26"
    service = parse_service(address)
    assert (service.name, service.sentinels, service.db) == ("m", (("a", 1), ("b", 3)), 2)
    assert (service.login, service.sentinel_login) == ({"username": "u", "password": "p w"}, {"password": "s&"})
    alone = Celery("alone", broker="sentinel://a:1/2", set_as_current=False)
    alone.conf.broker_transport_options = {"master_name": "m"}
    assert broker_address(alone.connection_for_write()) == "sentinel://a:1/2?service=m"


@pytest.mark.parametrize(
    ("error", "revoked", "outcome"),
    [
        (ValueError(), False, "failed"),
        (ValueError(), True, "cancelled"),
        (Terminated(15), False, "cancelled"),
        (Retry(), False, "again"),
        (MaxRetriesExceededError(), False, "failed"),
        (Reject("no", requeue=True), False, "again"),
        (Reject("no"), False, "failed"),
        (Ignore(), False, "succeeded"),
        (WorkerLostError(), False, "succeeded"),  # only asked where the success was stored before
    ],
)
def test_an_exception_is_an_outcome_in_the_words_of_finish(error: Any, revoked: bool, outcome: str) -> None:
    assert outcome_of(error, revoked) == outcome


def test_a_class_of_requests_is_derived_once_and_not_from_itself() -> None:
    derived = request_class(Request)
    assert request_class(Request) is derived
    assert request_class(derived) is derived


def test_a_delay_is_the_milliseconds_until_an_eta_and_none_if_it_has_passed() -> None:
    now = datetime.now(UTC)
    for eta in (now + timedelta(seconds=10), (now + timedelta(seconds=10)).isoformat()):
        delay_ms = delay_of(eta)
        assert delay_ms is not None
        assert 9_000 < delay_ms <= 10_000
    unzoned = delay_of((now + timedelta(seconds=10)).replace(tzinfo=None))
    assert unzoned is not None
    assert unzoned > 9_000
    assert delay_of(now - timedelta(seconds=1)) is None
    assert delay_of(None) is None
    with pytest.raises(InvalidInput, match="ISO 8601"):
        delay_of("tomorrow")


def test_a_signal_is_written_down_by_its_name() -> None:
    assert [signal_name(signal) for signal in ("SIGTERM", "KILL", 9)] == ["SIGTERM", "SIGKILL", "SIGKILL"]
    assert signal_name(None) == "SIGTERM", "what AsyncResult.revoke passes if its caller names none"
    for signal in ("SIGWHAT", "sigterm", 999):
        with pytest.raises(InvalidInput, match="signal="):
            signal_name(signal)


def new_app(**options: Any) -> Any:
    app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False, **options)

    @app.task(shared=False, name="unit.placed", parsync={"slots": 2, "priority": 1})
    def placed() -> None: ...

    @app.task(shared=False, name="unit.plain")
    def plain() -> None: ...

    @app.task(shared=False, name="unit.bad", parsync={"slot": 2})
    def bad() -> None: ...

    return app


@pytest.mark.parametrize(
    ("name", "carried", "call", "wish"),
    [
        ("unit.placed", None, None, {"slots": 2, "priority": 1}),
        ("unit.placed", None, {"slots": 3}, {"slots": 3, "priority": 1}),
        ("unit.placed", {"options": {"priority": 7}}, {"slots": 3}, {"slots": 3, "priority": 7}),
        ("unit.placed", None, False, None),
        ("unit.placed", False, None, None),
        ("unit.placed", False, True, {"slots": 2, "priority": 1}),
        ("unit.plain", None, None, None),
        ("unit.plain", None, True, {}),
        ("unit.plain", {"options": {"slots": 3}}, None, {"slots": 3}),
        ("unit.plain", {"attempt": "1@1"}, None, {}),
        ("unit.plain", {}, None, None),
    ],
)
def test_a_wish_is_the_calls_over_the_earlier_attempts_over_the_tasks_own(
    name: str, carried: Any, call: Any, wish: Any
) -> None:
    app = new_app()
    assert Parsync(app).wish(name, carried, call) == wish


def test_a_tasks_own_wish_is_known_before_the_app_was_finalized() -> None:
    app = new_app()
    assert not app.finalized
    assert Parsync(app).wish("unit.placed", None, None) is not None


def test_a_wrong_wish_is_refused_with_the_name_of_its_task() -> None:
    parsync = Parsync(new_app())
    with pytest.raises(InvalidInput, match=r"parsync=5 of task unit\.plain"):
        parsync.wish("unit.plain", None, 5)
    with pytest.raises(InvalidInput, match=r"task unit\.bad: unknown parsync option 'slot'"):
        parsync.check_tasks()


def test_attaching_reads_no_configuration() -> None:
    app = new_app()
    Parsync(app)
    assert not app.configured
    app.config_from_object({"task_default_queue": "mine"})
    assert app.amqp.queues.keys() == {"mine"} or app.conf.task_default_queue == "mine"


class MyAMQP(AMQP):  # type: ignore[misc,unused-ignore]
    """An app's own."""


class MyControl(Control):  # type: ignore[misc,unused-ignore]
    """An app's own."""


@pytest.mark.parametrize("made", [False, True])
def test_an_apps_own_components_are_derived_from_made_or_not(made: bool) -> None:
    app = new_app(amqp=MyAMQP, control=MyControl)
    if made:
        assert app.amqp
        assert app.control
        assert app.amqp.send_task_message
    Parsync(app)
    assert isinstance(app.amqp, MyAMQP)
    assert isinstance(app.control, MyControl)
    assert app.amqp.send_task_message.__module__ == "parsync_redis.integration.components"
    assert type(app.control).revoke is not Control.revoke


@pytest.mark.parametrize("options", [{}, {"amqp": MyAMQP, "control": MyControl}])
def test_an_app_that_was_pickled_has_its_parsync(options: Any) -> None:
    app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False, **options)
    Parsync(app, url="redis://127.0.0.1:9/3", cluster="pickled")
    copy = pickle.loads(pickle.dumps(app))
    assert copy.amqp.send_task_message
    assert (copy.parsync.settings().url, copy.parsync.settings().cluster) == ("redis://127.0.0.1:9/3", "pickled")
    assert isinstance(copy.amqp, options.get("amqp", AMQP))
    assert isinstance(pickle.loads(pickle.dumps(copy)).control, options.get("control", Control))


def test_an_app_has_one_parsync() -> None:
    app = new_app()
    Parsync(app)
    with pytest.raises(InvalidInput, match="has a Parsync already"):
        Parsync(app)


def test_an_app_whose_broker_is_not_redis_must_say_where_parsync_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARSYNC_URL", raising=False)
    app = Celery("rabbit", broker="amqp://u:secret@h//", set_as_current=False)
    with pytest.raises(InvalidInput, match="PARSYNC_URL") as caught:
        Parsync(app).settings()
    assert "secret" not in str(caught.value)


def run(task: str = "t", slot: int = 0, attempt: str = "1@1") -> Run:
    return Run(Place(task, attempt, 0, "n", slot, 1, 0))


def test_of_one_slot_only_one_run_goes_on_and_a_known_run_is_not_entered_again() -> None:
    runs = Runs()
    first = run()
    assert runs.enter(first)
    assert not runs.enter(run())
    assert not runs.enter(run("other"))
    assert runs.enter(run("other", slot=1))
    assert runs.end(first, "succeeded")
    assert not runs.enter(run()), "it has ended, but its slot is not released"
    assert runs.enter(run("third")), "the slot runs nothing any more"


def test_a_run_in_several_slots_is_not_entered_while_another_goes_on_in_any_of_them() -> None:
    runs, wide = Runs(), Run(Place("wide", "1@1", 0, "n", 0, 2, 0), more_slots=frozenset((0, 1)))
    dying = run("dying", slot=1)
    assert runs.enter(dying)
    assert not runs.enter(wide), "its incarnation was given up, but it is not dead yet"
    runs.end(dying, "lost")
    assert runs.enter(wide)
    assert not runs.enter(run("other", slot=1))


def test_of_a_runs_outcomes_the_first_counts() -> None:
    runs, one = Runs(), run()
    runs.enter(one)
    assert runs.end(one, "lost")
    assert not runs.end(one, "succeeded")
    assert one.outcome == "lost"


def test_a_run_that_is_home_is_forgotten() -> None:
    runs = Runs()
    for i in range(1000):
        one = run(f"t{i}")
        assert runs.enter(one)
        one.request = object()
        assert runs.going() == [one]
        runs.end(one, "succeeded")
        runs.drop([one])
    assert len(runs) == 0
    assert runs.keys() == set()
    assert runs.going() == []


def by_tenant(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **more: Any) -> Any:
    """A router that reads an argument."""
    return {"queue": kwargs["tenant"]} if name == "unit.placed" else None


@pytest.mark.parametrize(
    "conf",
    [
        {"task_routes": (by_tenant,)},
        {"task_routes": {"unit.placed": {"queue": "undeclared"}}, "task_create_missing_queues": False},
    ],
)
def test_a_task_whose_route_cannot_be_found_without_arguments_declares_no_queue(
    conf: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app()
    app.conf.update(conf)
    parsync = Parsync(app)
    for _ in range(2):
        assert parsync.known_tasks().declared["unit.placed"] == {"slots": 2, "priority": 1}
    said = [record.getMessage() for record in caplog.records if "route" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("task unit.placed has no queue when it is submitted by name only")
