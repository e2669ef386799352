"""Counters of `parsync serve` never fall, whichever schedulers come, go, and begin again."""

from parsync_redis.serve.totals import SchedulerTotals
from parsync_redis.store.members import SchedulerView


def said(name, placed, pid="1"):
    """What a scheduler says of itself."""
    return SchedulerView(name, 0, False, 1, {"pid": pid, "placed": str(placed), "conflicts": "odd"}, 0.1, True)


def test_the_sum_grows_by_what_each_scheduler_has_done_since_it_was_seen():
    totals = SchedulerTotals()
    assert totals.add([said("s1", 5), said("s2", 7)])["placed"] == 12
    assert totals.add([said("s1", 6), said("s2", 7)])["placed"] == 13
    assert totals.add([said("s2", 7)])["placed"] == 13, "s1 has left"
    assert totals.add([said("s1", 2, pid="2"), said("s2", 8)])["placed"] == 16, "s1 has begun again"
    assert totals.add([said("s1", 1, pid="2"), said("s2", 8)])["placed"] == 16, "an old figure changes nothing"
    assert totals.add([said("s1", 3, pid="2"), said("s2", 8)])["placed"] == 17
    assert totals.add([])["conflicts"] == 0
