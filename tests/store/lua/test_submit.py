"""submit makes each task exist once, or says why it cannot."""

from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import StoredState, Submission, TaskState
from parsync_redis.store.reads.views import Directory
from parsync_redis.submission import explain_refusal
from tests.kit.driver import NEVER_MS, Driver, dump, nth


def test_a_submitted_task_is_pending_with_its_message(drive: Driver):
    assert drive.submit("a", {"priority": 3}, message=b"\x00\xff{}") == "submitted"
    assert drive.index("pending") == ["a"]
    record = drive.record("a")
    line = drive.line("a")
    assert (record.state, record.attempt, record.extra) == ("pending", "", {})
    assert (line.takes, line.life, line.priority, line.options, line.kind) == (
        0,
        1,
        3,
        {},
        "work slots=1",
    )
    assert line.ready_ms == line.submitted_ms == record.now_ms or line.ready_ms <= record.now_ms
    assert drive.message("a") == b"\x00\xff{}"


def test_repeated_submits_of_the_same_id_make_a_single_task(drive: Driver):
    drive.submit("a", message=b"first")
    again = drive.commands.submit([Submission("a", "other", b"second")])
    assert drive.unchanged_by(again) == ["exists"]


def test_the_same_id_twice_in_a_call_makes_a_single_task(drive: Driver):
    twice = [Submission("a", "work", b"1"), Submission("a", "work", b"2")]
    assert drive.run(drive.commands.submit(twice)) == ["submitted", "exists"]
    assert drive.index("pending") == ["a"]


@pytest.mark.dealt
@pytest.mark.parametrize("state", [state for state in StoredState if state != StoredState.GONE])
def test_a_task_in_any_state_is_not_submitted_again(drive: Driver, state: StoredState):
    drive.bring(state)
    assert drive.unchanged_by(drive.commands.submit([Submission("a", "work", b"2")])) == ["exists"]


def test_larger_priority_goes_first_and_equals_in_the_order_of_submission(drive: Driver):
    for id, priority in (("low", 0), ("high1", 9), ("mid", 5), ("high2", 9), ("low2", 0)):
        drive.submit(id, {"priority": priority})
    assert drive.index("pending") == ["high1", "high2", "mid", "low", "low2"]


def test_a_delayed_task_is_later_and_not_pending(drive: Driver):
    drive.submit("a", delay_ms=NEVER_MS)
    assert (drive.index("pending"), drive.index("later")) == ([], ["a"])
    assert drive.take() == {}


def test_a_task_that_no_node_could_hold_is_infeasible_and_leaves_no_trace(drive: Driver):
    drive.offer("n1", "slots=2 gpu=1 zone:a", "work")
    for options in (
        {"slots": 3},
        {"resources": {"gpu": 2}},
        {"resources": {"mem": 1}},
        {"require": {"zone": "b"}},
    ):
        submission = Submission("a", "work", b"", TaskOptions.of(options))
        assert drive.unchanged_by(drive.commands.submit([submission])) == ["infeasible"]
    assert (
        drive.submit("a", {"slots": 2, "resources": {"gpu": 1}, "require": {"zone": "a"}})
        == "submitted"
    )


def test_a_name_that_no_worker_knows_is_unknown_and_leaves_no_trace(drive: Driver):
    drive.offer("n1", "slots=2", "work")
    assert drive.unchanged_by(drive.commands.submit([Submission("a", "wrok", b"")])) == ["unknown"]


def test_each_task_of_a_call_is_judged_by_itself(drive: Driver):
    drive.offer("n1", "slots=2", "work")
    tasks = [
        Submission("a", "work", b"", TaskOptions.of({"slots": 3})),
        Submission("b", "work", b""),
    ]
    assert drive.run(drive.commands.submit(tasks)) == ["infeasible", "submitted"]
    assert drive.index("pending") == ["b"]


def test_a_task_that_may_wait_for_capacity_is_not_judged(drive: Driver):
    drive.offer("n1", "slots=2", "work")
    assert (
        drive.submit("a", {"slots": 9, "wait_for_capacity": True}, name="elsewhere") == "submitted"
    )


def test_before_any_node_everything_may_be_feasible(drive: Driver):
    assert drive.submit("a", {"slots": 100}) == "submitted"


def test_feasibility_is_judged_anew_after_the_nodes_change(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2"))
    assert drive.submit("a", {"slots": 2}) == "submitted"
    drive.run(drive.commands.offer("n1", "slots=1"))
    assert drive.submit("b", {"slots": 2}) == "infeasible"
    drive.run(drive.commands.offer("n2", "slots=8"))
    assert drive.submit("b", {"slots": 2}) == "submitted"
    drive.run(drive.commands.offer("n2", ""))
    assert drive.submit("c", {"slots": 2}) == "infeasible"


def test_an_offer_that_is_known_already_changes_nothing(drive: Driver):
    call = drive.offer("n1", "slots=2", "work")
    drive.submit("a")
    assert drive.unchanged_by(call) == 0


def test_a_running_attempt_submits_the_successor_of_its_id(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert (
        drive.submit("a", {"slots": 2}, name="other", message=b"next", after=place.attempt)
        == "next"
    )
    assert drive.message("a") == b"message"
    assert drive.finish(place) == "again"
    assert (drive.state("a"), drive.line("a").kind, drive.message("a")) == (
        "pending",
        "other slots=2",
        b"next",
    )


def test_only_the_current_running_attempt_submits_a_successor(drive: Driver):
    place = drive.bring(StoredState.PLACED)
    after = drive.commands.submit([Submission("a", "work", b"next", after=place.attempt)])
    assert drive.unchanged_by(after) == ["stale"]
    drive.start(place)
    stale = drive.commands.submit([Submission("a", "work", b"next", after=nth(7))])
    assert drive.unchanged_by(stale) == ["stale"]
    drive.finish(place)
    assert drive.unchanged_by(after) == ["stale"]


def test_a_lost_run_loses_its_successor(drive: Driver):
    """The successor that a lost run submitted is removed: otherwise the success of the next attempt would start it."""
    place = drive.bring(StoredState.RUNNING)
    assert drive.submit("a", message=b"next", after=place.attempt) == "next"
    assert drive.requeue(place) == "pending"
    again = drive.place("a", drive.take()["a"])
    assert drive.start(again) == "ok"
    assert drive.finish(again) == "ok"
    assert drive.state("a") == "succeeded"


def test_fence_survives_purge(drive: Driver):
    """An id submitted anew after its record expired starts no attempt that an earlier life had."""
    old = drive.bring(StoredState.SUCCEEDED)
    assert drive.word(drive.commands.purge("succeeded", ["a"])) == "purged"
    new = drive.place("a", drive.taken("a"))
    assert (old.attempt, new.attempt) == (nth(1), nth(1, 2))
    before = dump(drive.store)
    assert drive.start(old) == "refused"
    assert drive.confirm(old) == "stale"
    assert drive.finish(old) == "stale"
    assert drive.requeue(old) == "none"
    assert dump(drive.store) == before


def test_the_first_task_of_a_kind_wakes_one_scheduler(drive: Driver):
    drive.wait("s1", "s2", "gone")
    first, second = (f"{drive.keys.wakes()}:{name}" for name in ("s1", "s2"))
    assert drive.heard(lambda: (drive.submit("a"), drive.submit("b")), first, second) == [
        (second, b"wake")
    ]
    assert drive.store.client.hget(drive.keys.queue("meta"), "waiters") == b"s1 s2 gone", (
        "it writes no text"
    )
    drive.take("s2")
    assert drive.store.client.hget(drive.keys.queue("meta"), "waiters") == b"s1 gone"


def with_argument(drive: Driver, **changed: str) -> Any:
    """Return a submit of one task with other arguments than a client would send."""
    call = drive.commands.submit([Submission("a", "work", b"{}", TaskOptions.of({}))])
    names = [*call.script.header.once, *call.script.header.each]
    args = [changed.get(name, value) for name, value in zip(names, call.args, strict=True)]
    return call._replace(args=args)


@pytest.mark.parametrize(
    "needs", ["slots=1\tgpu=1", "slots=1\r", "slots=1 gpu=\x001", "gpu=1 slots=1"]
)
def test_needs_that_the_view_could_not_read_are_refused_by_the_script_too(
    drive: Driver, needs: str
):
    with pytest.raises(BrokenContract, match="needs are words"):
        drive.unchanged_by(with_argument(drive, what=f"0 work {needs}"))


@pytest.mark.parametrize("name", ["no\tspaces", "\xe4", "n" * 256])
def test_a_name_that_no_worker_could_know_is_refused_by_the_script_too(drive: Driver, name: str):
    with pytest.raises(BrokenContract, match="the name of a task is printable"):
        drive.unchanged_by(with_argument(drive, what=f"0 {name} slots=1"))


@pytest.mark.parametrize("what", ["", "work slots=1", "0 ", "x work slots=1"])
def test_a_row_of_no_kind_is_refused(drive: Driver, what: str):
    with pytest.raises(BrokenContract, match="PSARGS"):
        drive.unchanged_by(with_argument(drive, what=what))


@pytest.mark.parametrize("id", ["a b", "", "\xe9", "a\n"])
def test_an_id_that_no_lease_could_carry_is_refused_by_the_script_too(drive: Driver, id: str):
    with pytest.raises(BrokenContract, match="an id is"):
        drive.unchanged_by(with_argument(drive, id=id))


@pytest.mark.dealt
@pytest.mark.parametrize(
    "options",
    [
        "max=0",
        "max=x",
        "max=1001",
        "delay=-1",
        "delay=x",
        "expiry=1.5",
        "expiry=1e99",
        "start=x",
        "start=-86400001",
        "start=31536000001",
        "pub=a,b",
        "pub=a-b",
        "a" * 1001,
    ],
)
def test_malformed_options_are_refused(drive: Driver, options: str):
    with pytest.raises(BrokenContract, match="PSARGS"):
        drive.unchanged_by(with_argument(drive, options=options))


# -- what Celery publishes: an id may be published again -------------------------------------------

ENDED = [StoredState.SUCCEEDED, StoredState.FAILED, StoredState.CANCELLED, StoredState.DEAD]


@pytest.mark.parametrize("state", ENDED)
def test_another_publish_of_an_id_that_has_ended_begins_a_new_life(
    drive: Driver, state: StoredState
):
    old = drive.bring(state)
    assert drive.submit("a", {"slots": 2}, message=b"anew", publication="c1") == "submitted"
    line = drive.line("a")
    status = drive.status("a")
    assert (status.state, drive.message("a"), line.takes, line.life) == (
        TaskState.WAITING,
        b"anew",
        0,
        2,
    )
    assert (status.starts, status.times["finished"], status.history) == (0, None, ())
    assert [drive.index(name) for name in ("ended", "ended_1", "ended_2")] == [[], [], []]
    assert not drive.store.client.exists(drive.keys.extra("a"))
    assert drive.index("dead") == []
    assert drive.start(old) == "refused"
    assert drive.finish(old) == "stale"


@pytest.mark.parametrize("state", ENDED)
def test_the_same_publish_again_is_the_same_life(drive: Driver, state: StoredState):
    """A client whose request was executed and not answered sends it again, perhaps after the task
    has ended.
    """
    drive.submit("a", publication="c1")
    place = drive.place("a", drive.take()["a"])
    repeat = drive.commands.submit([Submission("a", "work", b"message", publication="c1")])
    assert drive.unchanged_by(repeat) == ["exists"]
    drive.start(place)
    assert drive.unchanged_by(repeat) == ["exists"]
    drive.finish(place, "succeeded")
    assert drive.unchanged_by(repeat) == ["exists"]


def test_a_publish_of_a_running_id_is_its_successor_even_if_the_run_is_lost(
    drive: Driver,
):
    place = drive.bring(StoredState.RUNNING)
    assert drive.submit("a", message=b"next", publication="c1") == "next"
    repeat = drive.commands.submit([Submission("a", "work", b"next", publication="c1")])
    assert drive.unchanged_by(repeat) == ["exists"]
    assert drive.requeue(place) == "pending"
    assert drive.message("a") == b"message"
    again = drive.place("a", drive.take()["a"])
    drive.start(again)
    assert drive.finish(again) == "again"
    assert drive.message("a") == b"next"
    assert drive.unchanged_by(repeat) == ["exists"]
    last = drive.place("a", drive.take()["a"])
    drive.start(last)
    assert drive.finish(last) == "ok"
    assert drive.unchanged_by(repeat) == ["exists"]


WAITING = [StoredState.PENDING, StoredState.TAKEN, StoredState.PLACED]


@pytest.mark.parametrize("state", WAITING)
def test_a_publish_of_an_id_before_its_first_run_is_the_same_task(
    drive: Driver, state: StoredState
):
    drive.bring(state)
    assert drive.unchanged_by(
        drive.commands.submit([Submission("a", "work", b"2", publication="c1")])
    ) == ["exists"]


@pytest.mark.parametrize("state", WAITING)
def test_a_publish_of_an_id_that_waits_after_a_lost_run_is_its_successor(
    drive: Driver, state: StoredState
):
    """A task was replaced by a chain, its run was lost, and the chain's last step comes before the
    task runs again.
    """
    assert drive.requeue(drive.bring(StoredState.RUNNING)) == "pending"
    if state != StoredState.PENDING:
        place = drive.place("a", drive.take()["a"])
    if state == StoredState.PLACED:
        drive.confirm(place)
    assert drive.submit("a", message=b"last step", publication="s7") == "next"
    if state == StoredState.TAKEN:
        assert drive.word(drive.commands.give_back("s1", [("a", "", "", "")])) == "pending"
    if state != StoredState.PLACED:
        place = drive.place("a", drive.take()["a"])
    assert drive.start(place) == "ok"
    assert drive.submit("a", message=b"a retry", after=place.attempt) == "next"
    assert drive.finish(place) == "again"
    assert drive.message("a") == b"last step"
    assert not [
        field for field in drive.store.hash(drive.keys.extra("a")) if field.startswith("next")
    ]


def test_a_chain_does_not_go_on_where_its_last_step_was_cancelled(drive: Driver):
    drive.bring(StoredState.CANCELLED)
    step = drive.commands.submit([Submission("a", "work", b"step", publication="s7")])
    assert drive.unchanged_by(step) == ["exists"]
    assert drive.submit("a", message=b"published by hand", publication="c7") == "submitted"


def test_an_infeasible_new_life_keeps_the_old_record(drive: Driver):
    drive.bring(StoredState.DEAD)
    drive.offer("n1", "slots=2", "work")
    refused = Submission("a", "work", b"", TaskOptions.of({"slots": 9}), publication="c1")
    assert drive.unchanged_by(drive.commands.submit([refused])) == ["infeasible"]


# -- which nodes know a name -----------------------------------------------------------------------


def test_a_name_must_be_known_by_a_node_that_could_hold_the_task(drive: Driver):
    drive.offer("cpu", "slots=4", "resize")
    drive.offer("gpu", "slots=1 gpu=1", "train")
    assert drive.submit("a", {"resources": {"gpu": 1}}, name="train") == "submitted"
    assert drive.submit("b", {"resources": {"gpu": 1}}, name="resize") == "infeasible"
    assert drive.submit("c", name="resize") == "submitted"
    assert drive.submit("d", name="other") == "unknown"


def test_names_are_forgotten_with_the_last_node_that_knew_them(drive: Driver):
    drive.offer("n1", "slots=1", "old", "kept")
    drive.offer("n2", "slots=1", "old", "kept")
    drive.offer("n1", "slots=1", "new", "kept")
    assert drive.submit("a", name="old") == "submitted"
    drive.offer("n2", "slots=1", "new", "kept")
    assert drive.submit("b", name="old") == "unknown"
    assert drive.submit("c", name="kept") == "submitted"
    assert len(drive.store.hash(drive.keys.queue("names"))) == 1
    for node in ("n1", "n2"):
        drive.run(drive.commands.offer(node, ""))
    assert not drive.store.client.exists(drive.keys.queue("names"), drive.keys.queue("apps"))


def test_the_newest_app_is_the_last_registered_app(drive: Driver):
    directory = Directory(drive.store)
    assert directory.read().declared(["train"]) == {}
    for node, gpus in (("n1", 1), ("n2", 2), ("n1", 1)):
        tasks = KnownTasks.of({"train": {"resources": {"gpu": gpus}}, f"only.{gpus}": None})
        drive.run(
            drive.commands.offer(node, offer_with(Resources.of(4, {"gpu": 4}), tasks).text, tasks)
        )
    declared = directory.read().declared(["train", "only.1", "only.2", "none"])
    assert declared == {"train": {"resources": {"gpu": 2}}, "only.1": None, "only.2": None}


def test_a_task_for_a_queue_without_consumers_is_accepted(drive: Driver):
    drive.offer("n1", "slots=2", "work")
    task = Submission("a", "work", b"", TaskOptions.of({"slots": 2}, "video"))
    assert drive.run(drive.commands.submit([task])) == ["submitted"]
    assert drive.line("a").kind == "work slots=2 celery.queue:video"
    too_large = Submission("b", "work", b"", TaskOptions.of({"slots": 3}, "video"))
    assert drive.run(drive.commands.submit([too_large])) == ["infeasible"]


def test_a_refusal_speaks_only_of_nodes_that_know_the_name_and_never_of_the_queue(drive: Driver):
    drive.offer("gpu", "slots=1 gpu=1", "train")
    drive.offer("cpu", "slots=2", "work")
    task = Submission(
        "a", "work", b"", TaskOptions.of({"slots": 4, "resources": {"gpu": 1}}, "video")
    )
    (word,) = drive.run(drive.commands.submit([task]))
    why = str(explain_refusal(drive.store, task, word))
    assert "slots=4; the largest node has 2 (cpu)" in why
    assert "no node declares gpu" in why
    assert "video" not in why


def test_a_task_made_from_outdated_app_declarations_is_not_submitted(drive: Driver):
    directory = Directory(drive.store)
    before = directory.read()
    drive.offer("n1", "slots=2", "work")
    apps = directory.read()
    tasks = [Submission("a", "work", b""), Submission("b", "work", b"")]
    assert drive.unchanged_by(drive.commands.submit(tasks, before.stamps)) == ["changed", "changed"]
    drive.offer("n2", "slots=4", "work")  # another node of the same app
    assert drive.run(drive.commands.submit(tasks, apps.stamps)) == ["submitted", "submitted"]
    drive.run(drive.commands.offer("n1", ""))
    assert directory.read().stamps == apps.stamps, "another node has this app"
    drive.run(drive.commands.offer("n2", ""))
    assert directory.read().stamps != apps.stamps, "no node has it"


@pytest.mark.parametrize("stamp", ["", "damaged", "9" * 400, "12"])
def test_apps_get_a_stamp_that_was_never_used_before(drive: Driver, stamp: str):
    """A server that lost writes must not come to a stamp that a client has of other apps, so it is
    a time.
    """
    drive.store.client.hset(drive.keys.queue("meta"), "apps", stamp)
    before = int(drive.store.client.time()[0]) * 1000
    drive.offer("n1", "slots=2", "work")
    assert int(Directory(drive.store).read().stamps[0].split(".")[0]) >= before


def test_a_server_with_lost_writes_and_an_earlier_clock_gives_other_apps_a_new_stamp(
    drive: Driver,
):
    stamps = set()
    for node, name in (("n1", "work"), ("n2", "other")):
        drive.store.client.hset(drive.keys.queue("meta"), "apps", 9 * 10**13)
        drive.offer(node, "slots=2", name)
        stamps.add(Directory(drive.store).read().stamps[0])
    assert {stamp.split(".")[0] for stamp in stamps} == {str(9 * 10**13 + 1)}
    assert len(stamps) == 2


def test_an_empty_stamp_is_read_as_none(drive: Driver):
    drive.offer("n1", "slots=2", "work")
    drive.store.client.hset(drive.keys.queue("meta"), "apps", "")
    apps = Directory(drive.store).read()
    assert drive.run(drive.commands.submit([Submission("a", "work", b"")], apps.stamps)) == [
        "submitted"
    ]
