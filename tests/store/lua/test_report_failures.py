"""report_failures: streaks of nodes, and what other nodes report of the same names while they go
on.
"""

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.model.streak import Compared, Elsewhere, Streak
from parsync_redis.model.text import STREAK, LineTemplate
from parsync_redis.store.reads.views import read_holds
from tests.kit.driver import Driver

SECOND = 1000


@pytest.fixture
def drive(any_store) -> Driver:
    drive = Driver(any_store)
    for node in ("n1", "n2"):
        drive.run(drive.commands.deal_node(node, 1, "", 1, 1.0))
    return drive


def report(
    drive: Driver,
    node: str,
    since_ms: int,
    runs: int,
    failed: int = 0,
    length: int = 0,
    inc: int = 1,
    all_fail: bool = True,
    held: int = 0,
) -> Compared:
    call = drive.commands.report_failures(
        0, node, inc, since_ms, all_fail, [("work", runs, failed, length, held)]
    )
    return drive.run(call)


def streaks(drive: Driver) -> list[Streak]:
    texts = drive.store.hash(drive.keys.shared("streaks"))
    return [streak for name, text in texts.items() for streak in Streak.read(name, text)]


def age(drive: Driver, ms: int) -> None:
    """Let the streaks be so much older."""
    key = drive.keys.shared("streaks")
    for name, text in drive.store.hash(key).items():
        words = [word.partition("=") for word in text.split(" ")]
        old = [f"{k}={int(v) - ms}" if k in ("since", "at") else k + e + v for k, e, v in words]
        drive.store.client.hset(key, name, " ".join(old))


def test_runs_of_a_healthy_name_write_nothing(drive: Driver):
    assert report(drive, "n1", 0, 5).elsewhere == {}
    assert streaks(drive) == []


def test_a_streak_includes_reports_of_nodes_that_began_to_count_later(drive: Driver):
    first = report(drive, "n1", 0, 2, 2, length=2)
    assert (first.others, first.elsewhere) == (True, {"work": Elsewhere(0, 0)})
    report(drive, "n2", first.now_ms - 1, 9)
    assert report(drive, "n1", 0, 0, 0, length=2).elsewhere == {"work": Elsewhere(0, 0)}, (
        "runs from before it began"
    )
    report(drive, "n2", first.now_ms, 9, 1)
    assert report(drive, "n1", 0, 0, 0, length=2).elsewhere == {"work": Elsewhere(9, 1)}


def test_a_try_is_a_report_in_which_a_streak_goes_on_half_a_second_later(drive: Driver):
    report(drive, "n1", 0, 2, 2, length=2)
    report(drive, "n1", 0, 50, 50, length=52)
    assert [(streak.length, streak.tries) for streak in streaks(drive)] == [(52, 0)], (
        "at one moment"
    )
    age(drive, SECOND)
    report(drive, "n1", 0, 0, 0, length=52)
    assert streaks(drive)[0].tries == 0, "nothing failed since"
    report(drive, "n1", 0, 1, 1, length=53)
    assert [(streak.length, streak.tries, streak.all_fail) for streak in streaks(drive)] == [
        (53, 1, True)
    ]


def test_a_streak_says_whether_its_node_holds_the_name_back(drive: Driver):
    for held_ms in (9000, 0, 1):
        now = report(drive, "n1", 0, 1, 1, length=2, held=held_ms).now_ms
        report(drive, "n2", 0, 1, 1)
        assert [streak.held_ms for streak in streaks(drive)] == [now + held_ms if held_ms else 0]


def test_holds_end_and_only_lines_with_one_are_parsed(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
):
    """A line may stay after its hold, because the node is gone or its last report was lost."""
    key = drive.keys.shared("streaks")
    report(drive, "n1", 0, 2, 2, length=2, held=60_000)
    report(drive, "n2", 0, 2, 2, length=2)
    read: list[str] = []
    monkeypatch.setattr(
        STREAK, "read", lambda line: read.append(line) or LineTemplate.read(STREAK, line)
    )
    assert read_holds(drive.store) == {"work": {("n1", 1)}}
    assert [line.split()[1] for line in read] == ["n1"]
    text = drive.store.hash(key)["work"]
    held_ms = int(text.partition(" held=")[2].split()[0])
    drive.store.client.hset(
        key, "work", text.replace(f"held={held_ms}", f"held={held_ms - 60_000}")
    )
    assert read_holds(drive.store) == {}


def test_a_report_of_nobody_drops_old_lines_alone(drive: Driver):
    report(drive, "n1", 0, 2, 2, length=2)
    age(drive, 3600 * SECOND)
    drive.run(
        drive.commands.report_failures(
            0, "", 0, 0, False, [("work", 9, 9, 9, 9), ("other", 1, 1, 1, 1)]
        )
    )
    assert not drive.store.client.exists(drive.keys.shared("streaks"))
    report(drive, "n1", 0, 2, 2, length=2)
    drive.run(drive.commands.report_failures(0, "", 0, 0, False, [("work", 0, 0, 0, 0)]))
    assert [(streak.node, streak.runs) for streak in streaks(drive)] == [("n1", 0)]


def test_a_streak_ends_with_a_success_or_a_new_incarnation(drive: Driver):
    report(drive, "n1", 0, 2, 2, length=2)
    report(drive, "n2", 0, 2, 2, length=2)
    report(drive, "n1", 0, 1)
    assert [streak.node for streak in streaks(drive)] == ["n2"]
    age(drive, SECOND)
    report(drive, "n2", 0, 3, 3, length=3, inc=2)
    assert [(streak.inc, streak.tries) for streak in streaks(drive)] == [(2, 0)]
    report(drive, "n2", 0, 1, inc=2)
    assert not drive.store.client.exists(drive.keys.shared("streaks"))


def test_a_line_that_is_old_or_that_no_script_writes_is_dropped(drive: Driver):
    report(drive, "n1", 0, 2, 2, length=2)
    age(drive, 3601 * SECOND)
    report(drive, "n2", 0, 2, 2, length=2)
    assert [streak.node for streak in streaks(drive)] == ["n2"]
    drive.store.client.hset(drive.keys.shared("streaks"), "work", "nonsense\np0 n1 inc=1")
    report(drive, "n2", 0, 2, 2, length=2)
    assert [streak.node for streak in streaks(drive)] == ["n2"]


def test_a_report_tells_the_only_node_that_there_are_no_others(any_store):
    drive = Driver(any_store)
    drive.run(drive.commands.deal_node("n1", 1, "", 1, 1.0))
    assert not report(drive, "n1", 0, 2, 2, length=2).others


def test_a_report_of_a_wrong_number_or_node_is_refused(drive: Driver):
    for node, inc in (("a b", 1), ("n1", -1)):
        with pytest.raises(Exception, match="PSARGS"):
            report(drive, node, 0, 2, 2, length=2, inc=inc)
    with pytest.raises(InvalidInput, match="too long"):
        report(drive, "n" * 300, 0, 2, 2, length=2)
    assert streaks(drive) == []
