"""A forecast gives a range, and at least eight of ten tasks start within it, however much run times differ.

`python -m tests.unit.test_forecast` prints the share of tasks within the range for more cases.
"""

import heapq
from collections.abc import Callable, Sequence
from random import Random

import pytest

from parsync_redis.model.explanation import Forecast
from parsync_redis.model.needs import Resources
from parsync_redis.model.times import MIN_LEARNT_RUNS, LearntTimes, RunTimes
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import WaitingTasks, forecast_end, forecast_start

NAME = "proj.work"
NEEDS = Resources.needed(1)
BAR = 0.8

Law = Callable[[Random], float]

LAWS: dict[str, Law] = {
    "0.1 s or 300 s": lambda dice: dice.choice((100.0, 300_000.0)),
    "0.1 s, one of 20 300 s": lambda dice: 300_000.0 if dice.random() < 0.05 else 100.0,
    "exponential, mean 10 s": lambda dice: dice.expovariate(1 / 10_000),
    "lognormal, median 10 s": lambda dice: 10_000 * dice.lognormvariate(0, 1.5),
    "constant, 8.7 s": lambda dice: 8700.0,
}
"""Distributions of run times, by name: a function that draws a run time in ms."""

AHEAD = (0, 5, 30)
SLOTS = (1, 4)


def shares(law: Law, learnt: int, ahead: int, slots: int, cases: int) -> tuple[float, float]:
    """Return the shares of tasks that start, and of runs that end, within the range of their
    forecast.
    """
    within = [
        play(law, learnt, ahead, slots, f"{learnt} {ahead} {slots} {case}") for case in range(cases)
    ]
    return sum(start for start, _ in within) / cases, sum(end for _, end in within) / cases


def play(law: Law, learnt: int, ahead: int, slots: int, seed: str) -> tuple[bool, bool]:
    """Return whether a task starts, and a run on the node ends, as it was forecast.

    The forecast is made at a random moment of a node that was always full.
    """
    dice = Random(seed)
    times = RunTimes()
    for _ in range(learnt):
        times.add(law(dice))
    starts = [0.0] * slots
    ends = [(law(dice), slot) for slot in range(slots)]
    now_ms = dice.uniform(1, 3) * max(ends)[0]
    heapq.heapify(ends)
    while ends[0][0] <= now_ms:
        end_ms, slot = heapq.heappop(ends)
        starts[slot] = end_ms
        heapq.heappush(ends, (end_ms + law(dice), slot))
    start, end = forecast(times, ahead, starts, now_ms, seed)
    ends_first = next(end_ms for end_ms, slot in ends if slot == 0)
    for _ in range(ahead):
        end_ms, slot = heapq.heappop(ends)
        heapq.heappush(ends, (end_ms + law(dice), slot))
    return start.p5_ms - 1 <= ends[0][
        0
    ] <= start.p95_ms + 1, end.p5_ms - 1 <= ends_first <= end.p95_ms + 1


def forecast(
    times: RunTimes, ahead: int, starts: Sequence[float], now_ms: float, seed: str
) -> tuple[Forecast, Forecast]:
    """Return the forecasts of the start of a task, and of the end of the run in the first slot."""
    node = NodeFacts("n1", "up", False, Resources.of(len(starts)), 0)
    held = [
        (Holder("n1", f"{seed}.{slot}", {}, 1, round(start)), NAME)
        for slot, start in enumerate(starts)
    ]
    before = [WaitingTasks(NAME, NEEDS, [node], range(ahead))] if ahead else []
    learnt = LearntTimes({NAME: times})
    start = forecast_start(
        WaitingTasks(NAME, NEEDS, [node]), before, held, learnt, round(now_ms), seed
    )
    end = forecast_end(NAME, held[0][0], node.offer, learnt, round(now_ms))
    assert isinstance(start, Forecast)
    assert end is not None
    return start, end


@pytest.mark.parametrize("law", LAWS)
def test_tasks_start_and_runs_end_within_the_forecast_range(law: str) -> None:
    found = [shares(LAWS[law], 30, ahead, slots, 25) for ahead, slots in ((0, 1), (5, 4), (30, 4))]
    starts, ends = (sum(some) / len(found) for some in zip(*found, strict=True))
    assert starts >= BAR, found
    assert ends >= BAR, found


def test_a_range_is_no_wider_than_run_times_are() -> None:
    times = RunTimes()
    for _ in range(300):
        times.add(10_000)
    start, _ = forecast(times, 9, [0.0], 0, "narrow")
    assert 80_000 < start.p5_ms <= 100_000 <= start.p95_ms < 130_000


def main() -> None:
    """Print the shares by law, learnt runs, tasks ahead and slots."""
    cases = 40
    columns = [(ahead, slots) for ahead in (*AHEAD, 200) for slots in SLOTS]
    print(
        f"{'run times':24} {'learnt':>6}",
        *(f"{ahead:>5}/{slots}" for ahead, slots in columns),
        "   end",
    )
    for name, law in LAWS.items():
        for learnt in (MIN_LEARNT_RUNS, 30, 300):
            told = [(ahead, slots) for ahead, slots in columns if learnt >= ahead]
            found = [shares(law, learnt, ahead, slots, cases) for ahead, slots in told]
            ends = sum(end for _, end in found) / len(found)
            unknown = ["not yet"] * (len(columns) - len(told))
            print(
                f"{name:24} {learnt:>6}",
                *(f"{start:7.2f}" for start, _ in found),
                *unknown,
                f"{ends:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
