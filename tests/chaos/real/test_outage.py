"""The judge of outages exempts only tasks that the outage may have cost, and finds untold losses
and pauses.
"""

from collections import Counter, defaultdict
from math import inf

from parsync_redis.store.repair.losses import Loss
from tests.chaos.real.history import Event, Run
from tests.chaos.real.limited import freed_after_s
from tests.chaos.real.outage import Outage, exceeded, longest, pauses, touched, untold
from tests.kit.unit_locks import Units


def shard_of(id: str) -> int:
    return int(id[1:])


def event(verb: str, task: str, call_s: float, back_s: float, partition: int = 0) -> Event:
    item = {"task": task, "id": task, "partition": str(partition)}
    return Event("p", call_s, back_s, verb, item, "held" if verb == "commit" else "ok")


def requeue(task: str, back_s: float) -> Event:
    item = {"id": task, "attempt": "1@1"}
    return Event("p", back_s, back_s, "requeue", item, "pending")


def outage(kind: str) -> Outage:
    return Outage(kind, "h:1", frozenset([1]), frozenset([5]), 10.0, 11.0, 1000, 13.0, 13.0)


def test_a_task_is_exempt_if_its_shard_or_partition_answered_just_before_a_lossy_outage() -> None:
    lag = outage("lag")
    assert touched([event("finish", "t1", 10.5, 10.6)], [lag], shard_of) == {"t1"}
    assert touched([event("commit", "t2", 10.5, 10.6, 5)], [lag], shard_of) == {"t2"}
    assert touched([event("start", "t1", 9.0, inf)], [lag], shard_of) == {"t1"}, (
        "nobody knows when it happened"
    )
    assert not touched([event("finish", "t1", 9.0, 9.9)], [lag], shard_of), "its replica had it"
    assert not touched([event("finish", "t1", 13.1, 13.2)], [lag], shard_of), "its replica did it"
    assert not touched([event("finish", "t2", 10.5, 10.6)], [lag], shard_of), (
        "another primary did it"
    )
    assert not touched([event("commit", "t1", 10.5, 10.6, 4)], [lag], shard_of), (
        "another primary did it"
    )
    assert not touched([event("finish", "t1", 10.5, 10.6)], [outage("kill")], shard_of), (
        "its replica had all"
    )


def test_runs_near_an_outage_that_lost_writes_do_not_count_to_a_limit_and_all_others_do() -> None:
    def run(task: str, began_s: float, last_s: float) -> Run:
        return Run(task, "1@1", "n1", "0", 7, began_s, last_s)

    runs = [run("a", 1, 30), run("b", 2, 30), run("c", 12, 40), run("d", 21, 22), run("e", 30, 31)]
    units = Units(Counter(), Counter(), [], {"x": 2}, defaultdict(Counter))
    for task in "abcde":
        units.of_runs[task, "1@1", 7]["x"] = 1
    lag = outage("lag")  # from second 10 to second 13
    assert exceeded(runs, units, [outage("kill")], 2.0)[0].startswith("3 units of x of 2: c")
    (sentence,) = exceeded(runs, units, [lag], 2.0)
    assert sentence.startswith("3 units of x of 2: d"), "c does not count, d does"
    assert exceeded(runs, units, [lag], 9.0) == [], "neither counts, and e begins when a ends"
    assert freed_after_s(runs, [requeue("a", 31)], units) == [1]


def test_a_shard_must_report_its_lost_tasks_after_the_outage() -> None:
    def losses(name: str, at_ms: int) -> list[Loss]:
        return [Loss(at_ms, "s1", (f"{name} 7 -> 5",))]

    lag = outage("lag")
    assert untold(["t1"], [lag], losses("submitted_q1", 1500), shard_of) == []
    assert untold(["t1"], [lag], losses("submitted_q1", 900), shard_of) == ["t1"]
    assert untold(["t1"], [lag], losses("submitted_q2", 1500), shard_of) == ["t1"]
    assert untold(["t1"], [lag], losses("p1", 1500), shard_of) == ["t1"]
    assert untold(["t1"], [lag], [Loss(1500, "s1", (), ("q2,q1,p1",))], shard_of) == []
    assert untold(["t1"], [lag], [Loss(1500, "s1", (), ("q2,p1",))], shard_of) == ["t1"]


def test_the_longest_pause_of_an_interval_may_begin_before_it_and_end_after_it() -> None:
    assert longest([1.0, 2.0, 4.5, 5.0], 2.5, 4.0) == 2.5
    assert longest([], 2.0, 5.0) == 3.0
    assert longest([1.0, 3.0], 2.0, 9.0) == 6.0
    commits = [event("commit", f"t{n}", n, n, p) for n, p in ((1, 0), (2, 1), (3, 0), (9, 1))]
    assert pauses(commits, [frozenset([0]), frozenset([1])], [(1.0, 3.0)]) == [2, 7]
