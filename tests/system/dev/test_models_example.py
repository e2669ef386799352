"""`make models`, without make: fewer models are loaded with `warm`, and no process is left."""

import re
import subprocess
import sys

import pytest

from .test_demo import Marked

pytestmark = pytest.mark.serial


def test_fewer_models_are_loaded_with_warm():
    marked = Marked(COLUMNS="120")
    done = subprocess.run(
        [sys.executable, "-m", "examples.models", "--requests", "60"],
        env=marked.env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(
        r"^(\w+) warm +60 +(\d+) \(\d+%\) +[\d.]+ +[\d.]+$", done.stdout, re.MULTILINE
    )
    cold = {run: int(count) for run, count in rows}
    assert set(cold) == {"without", "with"}
    assert 10 <= cold["with"] < cold["without"] <= 60
    assert marked.running() == []
