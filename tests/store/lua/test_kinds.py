"""The index of kinds: its lines follow the queues, and a scheduler's copy follows the lines.

Promises 1 and 9 of docs/invariants.md.
"""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from parsync_redis.cli.explain import print_explanation
from parsync_redis.inspect.explanation import NOT_COUNTED, explain_task
from parsync_redis.inspect.waiting import NOT_YET, explain_tasks
from parsync_redis.model.kind import KindLine
from parsync_redis.model.order import MAX_ORDER
from parsync_redis.model.replies import Took
from parsync_redis.model.task import StoredState, Submission, TaskState
from parsync_redis.store import Store
from parsync_redis.store.reads.tasks import list_bounded, list_tasks
from tests.kit.driver import NEVER_MS, Driver


class Copy:
    """The copy of the index that a scheduler keeps."""

    def __init__(self, drive: Driver, most: int = 500) -> None:
        self.drive = drive
        self.most = most
        self.version = "0"
        self.lines = dict[str, str]()

    def read(self) -> Took:
        """Read a page of what has changed."""
        took: Took = self.drive.run(
            self.drive.commands.take("s1", since=self.version, most=self.most)
        )
        self.version = took.version
        if took.anew:
            self.lines.clear()
        for kind, line in took.changes:
            self.lines.pop(kind, None)
            self.lines |= {kind: line} if line else {}
        return took

    def read_all(self) -> int:
        """Read all pages; return how many."""
        pages = 1
        while self.read().more:
            pages += 1
        return pages


def dump_values(drive: Driver) -> dict[bytes, bytes]:
    """Return the whole database, as RESTORE takes it."""
    client: Any = drive.store.client
    return {key: client.dump(key) for key in client.scan_iter()}


def now_ms(drive: Driver) -> int:
    """Return the server's time."""
    client: Any = drive.store.client
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


# -- lines -----------------------------------------------------------------------------------------


def test_tasks_of_a_kind_share_their_name_needs_and_strategy_and_nothing_else(
    drive: Driver,
) -> None:
    drive.submit("a")
    drive.submit("b", {"priority": 9, "max_starts": 1})
    drive.submit("c", {"strategy": "latency"})
    drive.submit("d", {"require": {"zone": "a"}, "wait_for_capacity": True})
    drive.submit("e", name="other", expiry_ms=NEVER_MS)
    assert drive.kinds() == {
        "work slots=1": drive.kind_line("b", "a"),
        "work slots=1 latency": drive.kind_line("c"),
        "work slots=1 zone:a": drive.kind_line("d"),
        "other slots=1": drive.kind_line("e"),
    }


def test_each_kind_that_a_call_changes_gets_a_version_of_its_own(drive: Driver) -> None:
    tasks = [Submission(f"t{n}", f"f{n % 3}", b"") for n in range(6)]
    drive.run(drive.commands.submit(tasks))
    last = drive.version()
    found = drive.store.client.zrange(drive.keys.queue("changed"), 0, -1, withscores=True)
    assert found == [
        (b"f0 slots=1", last - 2.0),
        (b"f1 slots=1", last - 1.0),
        (b"f2 slots=1", last),
    ]
    seconds, _ = drive.store.client.time()
    assert 0 <= seconds - last // 100_000 < 3600, "it is a time, in hundredths of a ms"


def test_a_delayed_task_is_of_no_line_until_it_is_due(drive: Driver) -> None:
    drive.submit("a", delay_ms=NEVER_MS)
    assert drive.kinds() == {}
    drive.submit("b", delay_ms=0)
    took = drive.run(drive.commands.take("s1"))
    assert took.changes == [("work slots=1", drive.kind_line("b"))]


def test_due_tasks_move_to_their_kinds_in_batches(drive: Driver) -> None:
    for n in range(5):
        drive.submit(f"t{n}", delay_ms=0)
    drive.run(drive.commands.take("s1", most=2))
    assert (len(drive.index("later")), len(drive.index("pending"))) == (3, 2)
    took = drive.run(drive.commands.take("s1", [("work slots=1", 9)], most=2))
    assert (len(took.tasks), len(drive.index("pending")), len(drive.index("later"))) == (2, 2, 1)
    assert [line.split()[0] for _, line in took.changes] == ["2"], (
        "the scheduler hears of those that have come due"
    )
    assert took.due_ms is not None
    assert took.due_ms <= took.now_ms, "so that it asks again at once"


@pytest.mark.parametrize("gone", ["first", "middle", "last"])
def test_the_first_of_a_kind_is_right_whichever_is_cancelled(drive: Driver, gone: str) -> None:
    for id, priority in (("last", 0), ("middle", 5), ("first", 9)):
        drive.submit(id, {"priority": priority})
    assert drive.cancel(gone) == ("cancelled", "")
    left = [id for id in ("first", "middle", "last") if id != gone]
    line = KindLine.of(drive.kinds()["work slots=1"])
    assert (line.count, line.first) == (2, drive.line(left[0]).order)


def test_a_call_cancels_many_tasks_and_answers_for_each(drive: Driver) -> None:
    place = drive.bring(StoredState.RUNNING, "runs")
    for id in "abc":
        drive.submit(id, {"slots": 2} if id == "c" else {})
    drive.submit("later", delay_ms=NEVER_MS)
    words = drive.run(drive.commands.cancel(["c", "runs", "a", "gone", "a", "later"], "not wanted"))
    assert words == [
        ("cancelled", ""),
        ("asked", ""),
        ("cancelled", ""),
        ("none", "gone"),
        ("none", "cancelled"),
        ("cancelled", ""),
    ]
    assert drive.kinds() == {"work slots=1": drive.kind_line("b")}
    outbox = drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1)
    assert outbox == [f"{id} cancelled not wanted".encode() for id in ("later", "a", "c")]
    assert drive.finish(place) == "ok"


def test_a_take_of_a_kind_without_waiting_tasks_takes_no_task(drive: Driver) -> None:
    drive.submit("a")
    took = drive.unchanged_by(drive.commands.take("s1", [("work slots=2", 5), ("work slots=1", 0)]))
    assert took.tasks == []


def test_a_take_of_too_many_changes_nothing(drive: Driver) -> None:
    drive.submit("a")
    for rows in ([("work slots=1", 1001)], [("work slots=1", 600), ("other slots=1", 401)]):
        with pytest.raises(Exception, match="PSARGS"):
            drive.unchanged_by(drive.commands.take("s1", rows))


@pytest.mark.dealt
@pytest.mark.parametrize("state", [state for state in StoredState if state != StoredState.PENDING])
def test_a_task_that_does_not_wait_is_not_taken_though_it_is_in_a_queue(
    drive: Driver, state: StoredState
) -> None:
    drive.bring(state)
    drive.store.client.zadd(drive.keys.pending("work slots=1"), {"a": MAX_ORDER})
    drive.run(drive.commands.repair_kind("work slots=1"))
    took = drive.run(drive.commands.take("s1", [("work slots=1", 1)]))
    assert (took.tasks, took.failed, took.changes) == ([], [], [("work slots=1", "")])
    assert drive.state("a") == state


# -- copies ----------------------------------------------------------------------------------------


def test_a_copy_gets_only_the_changed_kinds(drive: Driver) -> None:
    copy = Copy(drive)
    for n in range(3):
        drive.submit(f"t{n}", name=f"f{n}")
    assert [kind for kind, _ in copy.read().changes] == ["f0 slots=1", "f1 slots=1", "f2 slots=1"]
    drive.submit("t3", name="f1")
    drive.cancel("t0")
    took = copy.read()
    assert took.changes == [("f1 slots=1", drive.kind_line("t1", "t3")), ("f0 slots=1", "")]
    assert not took.anew
    assert copy.lines == drive.kinds()
    assert copy.read().changes == []


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_copy_that_is_read_page_by_page_is_whole_at_the_end(drive: Driver, most: int) -> None:
    for n in range(6):
        drive.submit(f"t{n}", name=f"f{n}")
    copy = Copy(drive, most)
    assert copy.read_all() == -(-6 // most)
    assert copy.lines == drive.kinds()


def test_kinds_that_change_while_a_copy_is_read_are_right_at_the_end(drive: Driver) -> None:
    dice = Random(1)
    copies = [Copy(drive, most) for most in (1, 2, 5)]
    for n in range(60):
        drive.submit(f"t{n}", name=f"f{dice.randrange(9)}")
        if n % 2:
            drive.cancel(f"t{dice.randrange(n)}")
        dice.choice(copies).read()
        if n % 20 == 0:
            copies[0] = Copy(drive, 1)
    for copy in copies:
        copy.read_all()
        assert copy.lines == drive.kinds()


def test_a_copy_of_a_version_that_the_server_has_lost_is_dropped(drive: Driver) -> None:
    drive.submit("a")
    copy = Copy(drive)
    copy.version = f"{drive.version() + 1}"
    copy.lines = {"lost slots=1": "1 1 1"}
    assert copy.read().anew
    assert copy.lines == drive.kinds()


def test_a_version_that_came_from_a_clock_far_ahead_does_not_stop_the_queue(drive: Driver) -> None:
    drive.store.client.hset(drive.keys.queue("meta"), "version", 9 * 10**14)
    for id in ("a", "b"):
        drive.submit(id)
    assert drive.version() == 9 * 10**14 + 4, "a version for each task, and for each change"


def test_a_server_that_has_lost_writes_gives_no_version_that_a_copy_has(drive: Driver) -> None:
    drive.submit("stays")
    kept = dump_values(drive)
    drive.submit("lost", name="lost")
    copy = Copy(drive)
    lost_ms = copy.read().now_ms
    drive.store.client.flushall()
    for key, value in kept.items():
        drive.store.client.restore(key, 0, value)
    while now_ms(drive) <= lost_ms:
        pass  # no server is back within the millisecond of the write that it lost
    drive.submit("new", name="new")
    assert dict(copy.read().changes) == {"new slots=1": drive.kinds()["new slots=1"]}


@pytest.mark.parametrize("since", ["", "x", "-1", "1/", "1/2/3", "9" * 40])
def test_a_malformed_version_is_refused(drive: Driver, since: str) -> None:
    drive.submit("a")
    with pytest.raises(Exception, match=r"PSARGS|since of take is too long"):
        drive.unchanged_by(drive.commands.take("s1", since=since))


def many_ended(drive: Driver, count: int, head: str) -> None:
    """Let so many kinds begin and end, and the leader make its passes."""
    for at in range(0, count, 500):
        names = [f"{head}{n}" for n in range(at, min(at + 500, count))]
        drive.run(drive.commands.submit([Submission(name, name, b"") for name in names]))
        drive.run(drive.commands.cancel(names))
        drive.run(drive.commands.expire())


def test_ended_kinds_are_forgotten_and_old_copies_are_read_anew(store: Store) -> None:
    drive = Driver(store)
    old = Copy(drive)
    young = Copy(drive)
    drive.submit("stays", name="stays")
    drive.submit("goes", name="goes")
    old.read()
    drive.cancel("goes")
    many_ended(drive, 8_000, "a")
    young.read_all()
    begun = Copy(drive, most=1)
    begun.read()
    assert begun.version.endswith(f"/{drive.version()}")
    many_ended(drive, 5_000, "b")
    kept = drive.store.client.zcard(drive.keys.queue("changed"))
    assert 9_000 <= kept < 12_000, "of 13,001"
    assert old.read().anew, "it would not hear that 'goes' has ended"
    assert not young.read().anew
    begun.most = 10_000
    assert not begun.read().anew, "it was begun after the kinds ended that are forgotten"
    for copy in (old, young, begun):
        copy.read_all()
        assert copy.lines == drive.kinds() == {"stays slots=1": drive.kind_line("stays")}


def test_kinds_that_wait_are_never_forgotten_however_many_end(store: Store) -> None:
    drive = Driver(store)
    drive.run(drive.commands.submit([Submission(f"w{n}", f"w{n}", b"") for n in range(500)]))
    many_ended(drive, 15_000, "e")
    copy = Copy(drive, most=1000)
    copy.read_all()
    assert len(copy.lines) == 500
    assert copy.lines == drive.kinds()
    assert drive.store.client.zcard(drive.keys.queue("changed")) < 13_000


# -- people ----------------------------------------------------------------------------------------


def test_waiting_tasks_are_listed_in_the_order_of_all_kinds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Driver(store)
    dice = Random(3)
    for n in range(40):
        drive.submit(f"t{n}", {"priority": dice.randrange(10)}, name=f"f{dice.randrange(7)}")
    for page, kinds in ((10_000, 100), (5, 2), (1, 1)):
        monkeypatch.setattr("parsync_redis.store.reads.tasks._IDS_PER_READ", page)
        monkeypatch.setattr("parsync_redis.store.reads.tasks._KINDS_PER_READ", kinds)
        for limit in (1, 2, 7, 39, 40, 99):
            ids = [task.id for task in list_tasks(store, {TaskState.WAITING}, limit)]
            assert ids == drive.index("pending")[:limit]


def test_the_cost_of_a_list_of_waiting_tasks_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Driver(store)
    drive.run(drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000}))
    for name in ("n1", "n2", "n3"):
        drive.node(name)
    for id in ("a", "b", "c", "a2"):
        drive.submit(id, name=f"work.{id[0]}")
    monkeypatch.setattr("parsync_redis.inspect.waiting.MOST_COMPARED_FOR_LIST", 6)
    tasks = drive.store.statuses(["a", "b", "c", "a2"])
    whys = [task.why for task in explain_tasks(drive.store, tasks)]
    assert [NOT_YET in why for why in whys] == [False, False, True, False], whys
    written = replace(tasks[2], why="node n3 is full")
    assert explain_tasks(drive.store, [tasks[0], tasks[1], written])[2].why.endswith(
        "and node n3 is full"
    )
    monkeypatch.setattr("parsync_redis.inspect.waiting.MOST_COMPARED_FOR_LIST", 2)
    assert all(NOT_YET in task.why for task in explain_tasks(drive.store, tasks)), (
        "there are more nodes than that"
    )
    assert NOT_YET not in explain_tasks(drive.store, [tasks[2]])[0].why, (
        "one task is explained, whatever it costs"
    )


def test_the_cost_of_counting_the_tasks_ahead_of_a_task_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = Driver(store)
    drive.run(drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000}))
    drive.run(drive.commands.renew_scheduler("s1", stats={"placed": 0}))
    for name in ("n1", "n2", "n3"):
        drive.node(name, labels={"host": name})
    for id in ("a", "b"):
        drive.submit(id, {"require": {"host": "none"}, "wait_for_capacity": True}, f"work.{id}")
    drive.submit("c", name="work.c")
    drive.submit("last")
    monkeypatch.setattr("parsync_redis.inspect.waiting.MOST_COMPARED", 7)
    explanation = explain_task(store, "last")
    assert (explanation.ahead, explanation.ahead_alike) == (1, 1), (
        "two kinds by three nodes, and one that the first node fits"
    )
    monkeypatch.setattr("parsync_redis.inspect.waiting.MOST_COMPARED", 6)
    explanation = explain_task(store, "last")
    assert (explanation.ahead, explanation.ahead_alike, explanation.start) == (None, None, None)
    assert explanation.no_forecast == NOT_COUNTED
    print_explanation(explanation, verbose=False)
    assert "waiting tasks before it: not counted\n" in capsys.readouterr().out


def test_a_list_with_few_matches_reads_a_limited_number_of_tasks_and_reports_the_limit(
    drive: Driver,
) -> None:
    many_ended(drive, 3000, "e")
    listing = list_bounded(drive.store, {TaskState.SUCCEEDED}, 10, 1500)
    assert not listing.tasks
    looked = int(listing.part.removesuffix(" tasks were looked at").replace(",", ""))
    assert 1500 <= looked < 3000
    assert not list_bounded(drive.store, {TaskState.SUCCEEDED}, 10, 10_000).part


def test_a_waiting_task_shows_the_reason_of_its_kind_and_other_tasks_their_own(
    drive: Driver,
) -> None:
    for id in ("waits", "back"):
        drive.submit(id)
    attempt = drive.take()["back"]
    drive.run(
        drive.commands.give_back(
            "s1", [("back", attempt, "", "its scheduler was lost"), ("waits", "", "", "")]
        )
    )
    drive.submit("late", delay_ms=NEVER_MS)
    drive.submit("other", name="other")
    whys = {
        task.id: task.why
        for task in drive.store.statuses(["waits", "back", "late", "other", "gone"])
    }
    assert whys == {
        "waits": "",
        "back": "its scheduler was lost",
        "late": "",
        "other": "",
        "gone": "",
    }
    drive.run(drive.commands.set_reason([("work slots=1", "only node n1 fits: it is full")]))
    statuses: Any = drive.store.statuses(["waits", "back", "late", "other"])
    full = "only node n1 fits: it is full"
    assert [task.why for task in statuses] == [full, full, "", ""], (
        "one that is not due does not wait for a node"
    )
