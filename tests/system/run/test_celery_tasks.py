"""Tasks work through parsync as without it, on the pools prefork, threads and solo."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import Celery, chain, chord, group, signals
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.exceptions import ChordError, TaskRevokedError, TimeLimitExceeded
from celery.schedules import schedule
from kombu import serialization

from parsync_redis import Infeasible, InvalidInput, Parsync, UnknownLimit, UnknownTask
from tests.kit.rig import CLUSTER, LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    rig = new_rig(PARSYNC_MAX_STARTS="2")
    rig.schedulers(2, lease_s=LONG_LEASE_S)
    rig.worker("fork", pool="prefork", resources={"processes": 2}, up=False)
    rig.worker("threads", pool="threads", labels={"pool": "threads"}, up=False)
    rig.worker("solo", pool="solo", slots=1, labels={"pool": "solo"}, up=False)
    rig.until_up("fork", "threads", "solo")
    return rig


def get(result: Any) -> Any:
    return result.get(timeout=GET_S)


def test_every_pool_runs_tasks_and_gives_their_slots_back(rig: Rig) -> None:
    seen = {get(r)["node"] for r in [rig.tasks.where.delay(0.1) for _ in range(20)]}
    assert seen == {"fork", "threads", "solo"}
    rig.until_idle()


def test_a_task_without_options_goes_to_the_broker_and_one_with_them_to_parsync(rig: Rig) -> None:
    assert get(rig.tasks.plain.delay(4)) == 8
    assert get(rig.tasks.placed_at.delay()) is None
    assert get(rig.tasks.placed_at.apply_async(parsync={"priority": 3}))["slot"] >= 0
    assert get(rig.tasks.placed_at.apply_async(parsync=True))["slot"] >= 0


def test_parsync_false_keeps_a_task_with_the_broker_with_its_retries(rig: Rig) -> None:
    result = rig.tasks.flaky.apply_async((2,), parsync=False)
    assert get(result) == 2
    assert rig.status(result).state == "gone"


def test_tasks_can_be_sent_by_name(rig: Rig) -> None:
    assert get(rig.tasks.app.send_task("tests.kit.apps.marks.add", (1, 2))) == 3
    result = rig.tasks.app.send_task("tests.kit.apps.marks.plain", (1,), parsync={"priority": 9})
    assert get(result) == 2
    rig.until_state(result, "succeeded")


def test_shared_and_class_based_tasks_go_through_parsync(rig: Rig) -> None:
    for result, right in ((rig.tasks.shared.delay(1), 2), (rig.tasks.doubled.delay(4), 8)):
        assert get(result) == right
        assert rig.until_state(result, "succeeded").starts == 1


def test_a_retry_waits_in_the_queue_and_is_the_same_tasks_next_attempt(rig: Rig) -> None:
    result = rig.tasks.flaky.delay(2)
    assert get(result) == 2, "the number of its retries"
    assert rig.until_state(result, "succeeded").attempt >= 3, "each run is an attempt of its own"


def test_a_retry_keeps_the_options_of_its_call(rig: Rig) -> None:
    for task in (rig.tasks.flaky_where, rig.tasks.flaky_own):
        result = task.apply_async((2,), parsync={"require": {"pool": "threads"}, "slots": 2})
        found = get(result)
        assert (found["retries"], found["parsync"]["node"]) == (2, "threads")
        assert rig.status(result).needs == "slots=2 pool:threads"


def test_a_retry_keeps_what_a_client_without_an_app_asked_for(rig: Rig) -> None:
    id = rig.client.submit(
        "tests.kit.apps.marks.flaky_where", [1], slots=2, require={"pool": "threads"}
    )
    assert get(rig.tasks.app.AsyncResult(id))["retries"] == 1
    assert rig.status(id).needs == "slots=2 pool:threads"


def test_retries_that_are_used_up_end_in_the_error(rig: Rig) -> None:
    with pytest.raises(ValueError, match="flaky"):
        get(rig.tasks.flaky.delay(9))
    with pytest.raises(KeyError):
        get(result := rig.tasks.auto.delay("used-up"))
    assert len(rig.marks("auto", "used-up")) == 3
    assert rig.until_state(result, "failed").attempt >= 3, "each run is an attempt of its own"


def test_a_task_can_be_replaced_by_another(rig: Rig) -> None:
    result = rig.tasks.replaced.delay(4)
    assert get(result) == 8
    assert rig.until_state(result, "succeeded").name == "tests.kit.apps.marks.add"


def test_chains_groups_and_chords_nest(rig: Rig) -> None:
    add = rig.tasks.add
    total = rig.tasks.total
    flaky = rig.tasks.flaky
    assert get(chain(add.s(1, 2), add.s(3), add.s(4))()) == 10
    assert get(group(add.s(i, i) for i in range(10))()) == [2 * i for i in range(10)]
    assert get(chord([add.s(i, i) for i in range(10)])(total.s())) == 90
    nested = chain(
        group(add.s(i, 1) for i in range(3)),
        total.s(),
        add.s(100),
        group(add.s(1), add.s(2)),
        total.s(),
    )
    assert get(nested()) == 215
    assert (
        get(chord([chain(add.s(1, 1), add.s(1)), group(add.s(2, 2), add.s(3, 3))])(total.s())) == 13
    )
    assert get(chord([flaky.s(1), flaky.s(2), add.s(1, 1)])(total.s())) == 5


def test_a_groups_options_hold_for_each_of_its_tasks(rig: Rig) -> None:
    where = rig.tasks.where
    found = get(
        group(where.s() for _ in range(4)).apply_async(parsync={"require": {"pool": "threads"}})
    )
    assert {place["node"] for place in found} == {"threads"}


def test_links_and_errbacks_are_called(rig: Rig) -> None:
    rig.tasks.add.apply_async(
        (1, 2), link=rig.tasks.noted.si("linked"), link_error=rig.tasks.caught.s()
    )
    rig.until(lambda: rig.marks("end", "linked"), "the link ran")
    with pytest.raises(ValueError, match="boom"):
        get(rig.tasks.boom.apply_async(link_error=rig.tasks.caught.s()))
    rig.until(lambda: rig.marks("errback"), "the errback ran")
    assert len(rig.marks("errback")) == 1


def test_a_failure_in_a_chord_fails_its_body(rig: Rig) -> None:
    result = chord([rig.tasks.add.s(1, 1), rig.tasks.boom.s("in a chord")])(rig.tasks.total.s())
    with pytest.raises(Exception, match="in a chord"):
        get(result)


def test_a_user_chosen_id_is_a_single_task_however_often_it_is_sent(rig: Rig) -> None:
    """The task is due only after the three sends: a publication after the start of the task would be its successor."""
    for _ in range(3):
        result = rig.tasks.noted.apply_async(("mine",), task_id="order-17:render", countdown=10)
    assert get(result) == "mine"
    assert result.id == "order-17:render"
    assert len(rig.marks("begin", "mine")) == 1


def test_an_ignored_result_is_not_stored(rig: Rig) -> None:
    result = rig.tasks.silent.delay("silent")
    rig.until_state(result, "succeeded")
    assert rig.marks("silent", "silent")
    assert rig.redis.get(f"celery-task-meta-{result.id}") is None


def test_serializers_and_compression_are_celerys(rig: Rig) -> None:
    assert get(rig.tasks.add.apply_async(([1], [2]), serializer="accepted")) == [1, 2]
    assert get(rig.tasks.add.apply_async(("a" * 5000, "b"), compression="zlib")) == "a" * 5000 + "b"


def test_a_serializer_that_workers_do_not_accept_fails_the_task_and_not_the_worker(
    rig: Rig,
) -> None:
    serialization.register("homemade", json.dumps, json.loads, "application/x-homemade", "utf-8")
    result = rig.tasks.add.apply_async((1, 2), serializer="homemade")
    with pytest.raises(Exception, match="x-homemade"):
        get(result)
    assert rig.until_state(result, "failed").starts == 1
    rig.until_idle()


def test_signals_of_publishing_see_and_may_change_the_message(rig: Rig) -> None:
    seen: list[str] = []

    def before(sender: Any = None, headers: Any = None, body: Any = None, **_: Any) -> None:
        headers["shadow"] = "renamed"
        body[1]["b"] = 40
        seen.append(f"before {sender}")

    def after(sender: Any = None, **_: Any) -> None:
        seen.append(f"after {sender}")

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        assert get(rig.tasks.add.apply_async((2,), {"b": 0})) == 42
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert seen == [f"{when} tests.kit.apps.marks.add" for when in ("before", "after")]


def test_an_eta_is_waited_for_in_the_queue_while_the_slots_are_free(rig: Rig) -> None:
    rig.until_idle()
    due = time.time() + 3
    results = [
        rig.tasks.where.apply_async(countdown=3),
        rig.tasks.where.apply_async(eta=datetime.now(UTC) + timedelta(seconds=3)),
    ]
    assert [rig.status(result).state for result in results] == ["waiting", "waiting"]
    assert not rig.leases()
    for result in results:
        get(result)
        started = rig.status(result).times["started"]
        assert started is not None
        assert started >= (due - 0.1) * 1000


def test_a_task_that_has_expired_is_revoked_and_does_not_run(rig: Rig) -> None:
    result = rig.tasks.noted.apply_async(
        ("expired",), expires=datetime.now(UTC) - timedelta(seconds=1)
    )
    with pytest.raises(TaskRevokedError):
        get(result)
    assert rig.until_state(result, "cancelled").starts == 0
    assert rig.status(result).why == "expired"
    assert not rig.marks("begin", "expired")


def test_late_acks_rejections_and_ignore_behave_as_in_celery(rig: Rig) -> None:
    assert get(rig.tasks.late.delay(5)) == 5
    result = rig.tasks.rejecting.delay("back", requeue=True)
    assert get(result) == "back"
    assert len(rig.marks("rejecting", "back")) == 2
    rejected = rig.tasks.rejecting.delay("away")
    rig.until_state(rejected, "failed")
    assert len(rig.marks("rejecting", "away")) == 1
    assert rig.until_state(rig.tasks.ignoring.delay("ignored"), "succeeded").starts == 1


def test_a_rate_limit_is_kept_by_the_worker(rig: Rig) -> None:
    assert sorted(get(r) for r in [rig.tasks.limited.delay(i) for i in range(6)]) == list(range(6))


def test_a_hard_time_limit_fails_the_task_and_frees_its_slot(rig: Rig) -> None:
    with pytest.raises(TimeLimitExceeded):
        get(result := on_fork(rig, rig.tasks.hard_limited))
    assert rig.until_state(result, "failed").starts == 1
    rig.until_idle()


def test_a_soft_time_limit_can_be_caught(rig: Rig) -> None:
    assert get(on_fork(rig, rig.tasks.soft_limited)) == "soft"


def test_a_task_whose_process_is_killed_runs_again(rig: Rig) -> None:
    assert get(on_fork(rig, rig.tasks.add, 1, 2)) == 3, (
        "the last task here succeeded: the node holds no name back"
    )
    result = on_fork(rig, rig.tasks.dies, "once", 1)
    assert get(result) == "once"
    status = rig.until_state(result, "succeeded")
    assert status.starts == 2
    assert status.attempt >= 2, "each run is an attempt of its own"


def test_a_task_that_kills_its_process_at_every_allowed_start_is_dead_with_an_error_result(
    rig: Rig,
) -> None:
    result = on_fork(rig, rig.tasks.dies, "always", 99)
    with pytest.raises(WorkerLostError):
        get(result)
    assert rig.until_state(result, "dead").starts == 2
    assert len(rig.marks("dies", "always")) == 2


def test_an_invalid_or_infeasible_option_is_refused_at_the_call_and_leaves_no_trace(
    rig: Rig,
) -> None:
    add = rig.tasks.add
    with pytest.raises(InvalidInput, match=r"unknown parsync option 'slot'.*slots, resources"):
        add.apply_async((1, 2), parsync={"slot": 2})
    with pytest.raises(InvalidInput, match="must be a dict"):
        add.apply_async((1, 2), parsync=5)
    with pytest.raises(InvalidInput, match=r"slots=-1.*1 to 10,000"):
        add.apply_async((1, 2), parsync={"slots": -1})
    with pytest.raises(Infeasible, match="2"):
        add.apply_async((1, 2), task_id="too-large", parsync={"slots": 3})
    with pytest.raises(Infeasible, match="gpu"):
        add.apply_async((1, 2), parsync={"resources": {"gpu": 1}})
    with pytest.raises(UnknownTask, match=r"did you mean tests\.kit\.apps\.marks\.add"):
        rig.tasks.app.send_task("tests.kit.apps.marks.addd", (1,), parsync=True)
    assert rig.status("too-large").state == "gone"


ADD = "tests.kit.apps.marks.add"
NOBODY = "tests.kit.apps.marks.nobody"
DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "delay": lambda tasks, sig: sig.delay(),
    "beat": lambda tasks, sig: beaten(tasks.app, sig),
    "retry": lambda tasks, sig: tasks.outgrows.delay("retry", **sig.options["parsync"]),
    "replace": lambda tasks, sig: tasks.outgrows.delay(sig.task, **sig.options["parsync"]),
    "replace in a chord": lambda tasks, sig: chord(
        [tasks.outgrows.s(sig.task, **sig.options["parsync"])], tasks.total.s()
    ).delay(),
    "chain": lambda tasks, sig: chain(tasks.add.si(1, 1), sig).delay(),
    "callback": lambda tasks, sig: tasks.add.apply_async((1, 1), link=sig),
    "chord body": lambda tasks, sig: chord([tasks.add.si(1, 1)], sig).delay(),
}


SUBMITS = ("delay", "send_task", "a client", "another tenant", "no tenant", "a plain task")
"""Ways of the task `submits`."""


def in_a_task(way: str, tasks: Any, id: str) -> None:
    """Let a task submit another task."""
    tasks.submits.apply_async((way, id), parsync=OF_ANNA)


ANNA = "research/anna"
OF_ANNA: dict[str, Any] = {"tenant": ANNA}
FORKED = {**OF_ANNA, "resources": {"processes": 1}}
HEIRS: dict[str, Callable[[Any, str], object]] = {
    "retry": lambda tasks, id: tasks.flaky.apply_async((1,), task_id=id, parsync=OF_ANNA),
    "retry of a task with options": lambda tasks, id: tasks.flaky_own.apply_async(
        (1,), task_id=id, parsync=OF_ANNA
    ),
    "retry of a client's task": lambda tasks, id: tasks.app.parsync.client.submit(
        tasks.flaky_where.name, [1], id=id, tenant=ANNA
    ),
    "retry of a client's task with options": lambda tasks, id: tasks.app.parsync.client.submit(
        tasks.flaky_own.name, [2], id=id, tenant=ANNA
    ),
    "replace": lambda tasks, id: tasks.replaced.apply_async((4,), task_id=id, parsync=OF_ANNA),
    "chain": lambda tasks, id: chain(
        tasks.add.si(1, 1).set(parsync=OF_ANNA), tasks.add.si(1, 1), heir(tasks.add, id)
    ).delay(),
    "chain of a client's task": lambda tasks, id: tasks.app.parsync.client.submit(
        tasks.submits.name, ["delay", id], tenant=ANNA
    ),
    "group": lambda tasks, id: chain(
        tasks.add.si(1, 1).set(parsync=OF_ANNA), group(tasks.add.si(1, 1), heir(tasks.add, id))
    ).delay(),
    "chord": lambda tasks, id: chord(
        [tasks.add.si(1, 1).set(parsync=OF_ANNA), tasks.add.si(2, 2).set(parsync=OF_ANNA)],
        tasks.total.s().set(task_id=id),
    ).delay(),
    "callback": lambda tasks, id: tasks.add.apply_async(
        (1, 1), parsync=OF_ANNA, link=heir(tasks.add, id)
    ),
    "errback": lambda tasks, id: tasks.boom.apply_async(
        parsync=OF_ANNA, link_error=tasks.silent.s().set(task_id=id)
    ),
    "errback of a run that its worker ended": lambda tasks, id: tasks.hard_limited.apply_async(
        parsync=FORKED, link_error=tasks.silent.s().set(task_id=id)
    ),
    "errback of a dead task": lambda tasks, id: tasks.dies.apply_async(
        ("heirs", 9), parsync=FORKED, link_error=tasks.silent.s().set(task_id=id)
    ),
    "beat": lambda tasks, id: beaten(
        tasks.app, tasks.add.si(1, 1).set(task_id=id, parsync=OF_ANNA)
    ),
    **{f"{way} in a task": partial(in_a_task, way) for way in SUBMITS},
}
"""Ways in which a task comes to a tenant that another task, or its own earlier run, has."""


def heir(task: Any, id: str) -> Any:
    """Return the signature of a task that inherits."""
    return task.si(1, 1).set(task_id=id)


def retries_of(rig: Rig, id: str) -> int:
    """Return how often a `flaky` task was retried. Its attempts may be more.

    A task that is given back before its run has begun has another attempt.
    """
    result = get(rig.tasks.app.AsyncResult(id))
    return int(result["retries"] if isinstance(result, dict) else result)


def test_a_tenant_is_inherited_in_every_way_in_which_a_task_submits(rig: Rig) -> None:
    ids = {way: way.replace(" ", "-").replace("'", "") for way in HEIRS}
    for way, id in ids.items():
        HEIRS[way](rig.tasks, id)
    ended = {way: rig.until_state(id, "succeeded", "failed") for way, id in ids.items()}
    tenants = {way: status.tenant for way, status in ended.items()}
    own = {"another tenant in a task": "sales", "no tenant in a task": ""}
    assert tenants == {way: own.get(way, ANNA) for way in HEIRS}
    retries = {way: retries_of(rig, ids[way]) for way in HEIRS if "retry" in way}
    assert retries == {
        "retry": 1,
        "retry of a task with options": 1,
        "retry of a client's task": 1,
        "retry of a client's task with options": 2,
    }, "the heir is the last run of the task"


CHARGE = "tests.kit.apps.marks.charge"
UNDER: dict[str, Any] = {"limits": {"customer:7": 2}}


def a_stranger(rig: Rig) -> Any:
    """Return an app that has none of the tasks."""
    app = Celery("stranger", broker=rig.broker, backend=rig.broker, set_as_current=False)
    Parsync(app, url=rig.url, cluster=CLUSTER)
    return app


CHARGES: dict[str, Callable[[Rig], Any]] = {
    "by position": lambda rig: rig.tasks.charge.delay(5, 7),
    "by name": lambda rig: rig.tasks.charge.delay(5, customer_id=7),
    "a retry": lambda rig: rig.tasks.charge.delay(5, 7, fails=2),
    "chain": lambda rig: chain(rig.tasks.add.s(2, 3), rig.tasks.charge.s(7)).delay(),
    "send_task": lambda rig: rig.tasks.app.send_task(CHARGE, (5, 7)),
    "send_task of an app without the task": lambda rig: a_stranger(rig).send_task(CHARGE, (5, 7)),
    "a client": lambda rig: rig.client.submit(CHARGE, [5, 7]),
    "a retry of a client's task": lambda rig: rig.client.submit(CHARGE, [5, 7], {"fails": 2}),
}
"""Ways in which the arguments of a call come into a declared limit."""


def test_a_declared_limit_has_the_argument_of_each_call_and_its_retries(rig: Rig) -> None:
    ids = {way: submit(rig) for way, submit in CHARGES.items()}
    ended = {way: rig.until_state(id, "succeeded") for way, id in ids.items()}
    assert {way: status.limits for way, status in ended.items()} == dict.fromkeys(
        CHARGES, "customer:7"
    )
    assert all(ended[way].attempt >= 3 for way in ended if "retry" in way)


def test_a_limit_that_an_app_declares_is_known_while_its_worker_runs(rig: Rig) -> None:
    assert rig.client.policy().declared == {
        "customer:*": {"at_once": 5, "declared_by": [rig.tasks.app.main]}
    }


def test_a_limit_has_the_argument_that_a_signal_put_into_the_message(rig: Rig) -> None:
    def before(body: Any = None, **_: Any) -> None:
        body[1]["customer_id"] = 8

    signals.before_task_publish.connect(before)
    try:
        result = rig.tasks.charge.apply_async((5,), {"customer_id": 7})
    finally:
        signals.before_task_publish.disconnect(before)
    assert rig.until_state(result, "succeeded").limits == "customer:8"


def test_limits_are_kept_by_a_retry_and_not_inherited(rig: Rig) -> None:
    name = rig.tasks.flaky_own.name
    kept = {
        "an app": rig.tasks.flaky_own.apply_async((1,), parsync={**UNDER, "slots": 2}),
        "a client": rig.client.submit(name, [1], slots=2, **UNDER),
    }
    rig.tasks.submits.apply_async(("delay", "not-inherited"), parsync=UNDER)
    for id in kept.values():
        status = rig.until_state(id, "succeeded")
        assert retries_of(rig, status.id) == 1
        assert (status.limits, status.needs) == ("customer:7*2", "slots=2")
    assert rig.until_state("not-inherited", "succeeded").limits == ""


def test_a_limit_that_the_policy_does_not_have_is_refused_with_the_known_ones(rig: Rig) -> None:
    right = (
        r"^no limit 'custmer:7'; did you mean customer:\*\? known are customer:\* "
        r"\(task tests\.kit\.apps\.marks\.add; wait_for_capacity=True would let it wait\)$"
    )
    wrong: dict[str, Any] = {"limits": ["custmer:7"]}
    with pytest.raises(UnknownLimit, match=right):
        rig.tasks.add.apply_async((1, 2), parsync=wrong)
    with pytest.raises(UnknownLimit, match=right):
        rig.client.submit(ADD, [1, 2], **wrong)
    refused = chain(rig.tasks.add.s(1, 1), rig.tasks.add.s(2).set(parsync=wrong)).delay()
    with pytest.raises(UnknownLimit, match="no limit 'custmer:7'"):
        get(refused)
    waits = rig.client.submit(ADD, [1, 2], wait_for_capacity=True, **wrong)
    assert rig.client.cancel(waits) == "cancelled"


def beaten(app: Any, sig: Any) -> Any:
    """Submit a task as beat does."""
    entry = ScheduleEntry(
        name="e", task=sig.task, schedule=schedule(1), args=sig.args, options=sig.options, app=app
    )
    try:
        return Scheduler(app=app, lazy=True).apply_async(entry, advance=False)
    except SchedulingError as error:
        raise error.__context__ or error from None


@pytest.mark.parametrize("door", DOORS)
def test_by_each_door_of_celery_a_task_that_no_node_can_hold_fails_and_one_that_fits_runs(
    rig: Rig, door: str
) -> None:
    """A refusal reaches whoever waits: nobody waits for ever."""
    submit = DOORS[door]
    app = rig.tasks.app
    assert get(
        submit(rig.tasks, app.signature(ADD, (3, 4), immutable=True, parsync={"slots": 1}))
    ) in (
        7,
        2,
        "ran again",
    )
    nowhere = app.signature(ADD, (3, 4), immutable=True, parsync={"slots": 64})
    with pytest.raises(
        (Infeasible, ChordError), match="task needs slots=64; the largest node has 2"
    ):
        get(submit(rig.tasks, nowhere))
    if door != "retry":  # of the same name
        with pytest.raises((UnknownTask, ChordError), match="no node knows a task"):
            get(
                submit(
                    rig.tasks, app.signature(NOBODY, (3, 4), immutable=True, parsync={"slots": 1})
                )
            )


def test_a_retry_that_may_wait_for_capacity_waits_and_one_with_a_wrong_option_fails(
    rig: Rig,
) -> None:
    result = rig.tasks.outgrows.delay("retry", slots=64, wait_for_capacity=True)
    rig.until(lambda: rig.status(result).needs == "slots=64", "it waits for a large node")
    result.revoke()
    with pytest.raises(InvalidInput, match="unknown parsync option 'slot'"):
        get(rig.tasks.outgrows.delay("retry", slot=1))


@pytest.mark.parametrize("executed", [True, False], ids=["executed", "not executed"])
@pytest.mark.parametrize("how", ["retry", "replace"])
def test_a_retry_whose_submit_is_in_doubt_is_no_failure_and_runs(
    rig: Rig, how: str, executed: bool
) -> None:
    """The server has the next run, or the run that asked for it is repeated."""
    key = f"{how} {executed}".replace(" ", "-")
    result = on_fork(rig, rig.tasks.doubtful, key, how, executed)
    assert get(result) == "ran again"
    rig.until_state(result, "succeeded")
    runs = len(rig.marks("doubtful", key)) + (how == "replace")
    assert runs == (2 if executed else 3)


def on_fork(rig: Rig, task: Any, *args: Any) -> Any:
    """Run a task on the prefork node: the others have no processes of their own to kill."""
    return task.apply_async(args, parsync={"resources": {"processes": 1}})
