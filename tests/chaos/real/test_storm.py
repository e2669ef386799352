"""Layers 3 and 4 in short: real processes under random faults break no promise.

`make chaos` is the long form.
"""

from pathlib import Path

import pytest

from tests.chaos.real.play import play

pytestmark = pytest.mark.serial


def test_promises_1_to_7_and_limits_hold_for_real_processes_under_faults(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = play(seconds=20, seed=5, folder=tmp_path / "storm", say=said.append, every_s=0.8)
    history = "\n".join([*said, *outcome.broken, str(outcome.figures)])
    print(history)
    assert not outcome.broken, history
    assert outcome.figures["faults"] >= 8
    assert outcome.figures["acknowledged"] >= 30, history
    assert outcome.figures["overruns"] == 0
    assert outcome.figures["last_units"]["limit-1"] >= 3, f"limits were hardly tried: {history}"
