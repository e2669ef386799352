"""`parsync bench serve` measures a real `parsync serve`, small."""

import json

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app

pytestmark = pytest.mark.serial


def test_the_command_prints_cores_with_and_without_viewers_and_the_delay_of_a_change():
    words = [
        "bench",
        "serve",
        "--nodes",
        "20",
        "--tasks",
        "300",
        "--viewers",
        "3",
        "--seconds",
        "2",
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["nodes"], found["tasks"], found["kinds"]) == (20, 300, 100)
    assert found["idle"]["messages_per_s"] == 0
    assert found["changing"]["messages_per_s"] > 0
    assert found["viewed"]["serve"] > 0
    assert found["read_s"] > 0
    fresh = found["fresh"]
    assert fresh["changes"] > 1
    for what in ("pages", "events"):
        assert 0 < fresh[what]["p50_ms"] <= fresh[what]["p99_ms"] <= fresh[what]["max_ms"]
