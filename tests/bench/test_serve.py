"""`parsync bench serve` measures a real `parsync serve`, small."""

import json

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app

pytestmark = pytest.mark.serial


def test_it_tells_the_cores_without_and_with_viewers():
    words = ["bench", "serve", "--nodes", "20", "--tasks", "300", "--viewers", "3", "--seconds", "2", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["nodes"], found["tasks"], found["kinds"]) == (20, 300, 100)
    assert found["idle"]["requests_per_s"] == 0
    assert found["viewed"]["requests_per_s"] > 0
    assert found["viewed"]["serve"] > 0
    assert found["read_s"] > 0
