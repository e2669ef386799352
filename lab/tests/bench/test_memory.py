"""`parsync bench memory`: the server's memory for tasks in each state."""

import json
import threading

import pytest
from typer.testing import CliRunner

from parsync_lab import Stopped
from parsync_lab.bench.cost_life import COST_CASES, MESSAGE
from parsync_lab.bench.memory import VERBS_BY_STATE, run_memory
from parsync_redis.cli import app


def test_a_task_takes_its_message_until_it_has_ended():
    found = json.loads(
        CliRunner().invoke(app, ["bench", "memory", "--tasks", "2000", "--json"]).stdout
    )
    assert set(found["memory"]) == set(COST_CASES)
    for states in found["memory"].values():
        assert set(states) == set(VERBS_BY_STATE)
        assert len(MESSAGE) < states["waiting"]["bytes"] < states["running"]["bytes"]
        assert 0 < states["ended"]["bytes"] < len(MESSAGE)
        assert states["running"]["mb"] == pytest.approx(
            2000 * states["running"]["bytes"] / 1e6, abs=0.1
        )


def test_the_measurement_stops_when_it_is_told_to():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        run_memory(500, stop, lambda text: None)
