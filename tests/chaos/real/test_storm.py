"""Layers 3 and 4 in short: real processes under random faults break no promise.

`make chaos` is the long form.
"""

from pathlib import Path

import pytest

from tests.chaos.real.play import Outcome, play
from tests.chaos.real.several_storm import play_several

pytestmark = pytest.mark.serial


def show(progress: list[str], outcome: Outcome) -> str:
    """Return what happened, for people; print it too."""
    history = "\n".join([*progress, *outcome.broken, str(outcome.figures)])
    print(history)
    return history


def test_promises_1_to_7_and_limits_hold_for_real_processes_under_faults(tmp_path: Path) -> None:
    progress: list[str] = []
    outcome = play(seconds=20, seed=5, folder=tmp_path / "storm", say=progress.append, every_s=0.8)
    history = show(progress, outcome)
    assert not outcome.broken, history
    assert outcome.figures["faults"] >= 8
    assert outcome.figures["acknowledged"] >= 30, history
    assert outcome.figures["overruns"] == 0
    assert outcome.figures["last_units"]["limit-1"] >= 3, f"limits were hardly tried: {history}"


@pytest.mark.parametrize(
    ("loses", "fault"), [(False, "kill primary"), (True, "kill primary of a lagging replica")]
)
def test_limits_hold_on_several_servers_that_die_and_are_exact_again_after_lost_writes(
    tmp_path: Path, loses: bool, fault: str
) -> None:
    progress: list[str] = []
    outcome = play_several(15, 5, tmp_path / "storm", progress.append, every_s=0.8, loses=loses)
    history = show(progress, outcome)
    assert not outcome.broken, history
    assert outcome.figures["by_kind"][fault] >= 1, history
    assert outcome.figures["last_units"]["limit-1"] >= 3, f"limits were hardly tried: {history}"
