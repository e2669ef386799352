"""Counters of `parsync serve` never fall, whichever schedulers come, go, and begin again."""

from parsync_redis.serve.counting import MOST_REPORTERS, SchedulerTotals
from parsync_redis.store.reads.schedulers import SchedulerView


def said(name, placed, pid="1"):
    """Return the figures of a scheduler."""
    return SchedulerView(
        name, 0, False, 1, {"pid": pid, "placed": str(placed), "conflicts": "odd"}, 0.1, True
    )


def test_the_sum_grows_by_what_each_scheduler_has_done_since_the_service_started():
    totals = SchedulerTotals()
    assert totals.add([said("s1", 5), said("s2", 7)])["placed"] == 0, "that was before"
    assert totals.add([said("s1", 6), said("s2", 7)])["placed"] == 1
    assert totals.add([said("s2", 7), said("s3", 4)])["placed"] == 5, "s1 has left, s3 has come"
    assert totals.add([said("s1", 2, pid="2"), said("s2", 8)])["placed"] == 8, "s1 has begun again"
    assert totals.add([said("s1", 3, pid="2"), said("s2", 8)])["placed"] == 9
    assert totals.add([])["conflicts"] == 0
    assert totals.add([said("s2", 9)])["placed"] == 10, "s2 was away for one survey"


def test_a_scheduler_that_begins_again_with_its_name_and_pid_counts_as_a_whole():
    totals = SchedulerTotals()
    totals.add([])
    assert totals.add([said("s1", 50)])["placed"] == 50
    assert totals.add([said("s1", 3)])["placed"] == 53
    assert totals.add([said("s1", 5)])["placed"] == 55


def test_few_schedulers_that_are_gone_are_remembered():
    totals = SchedulerTotals()
    for number in range(MOST_REPORTERS + 5):
        totals.add([said(f"s{number}", 1)])
    assert totals.add([said("s0", 1)])["placed"] == MOST_REPORTERS + 5
    assert totals.add([said(f"s{MOST_REPORTERS}", 1)])["placed"] == MOST_REPORTERS + 5
