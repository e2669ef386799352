"""`parsync dev`: ready means ready, its printed commands work, and a process that ends is told with
its log.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from parsync_redis.cli.stack import Process
from tests.kit import REPO
from tests.kit.waiting import ended, run, until

APP = """
from celery import Celery
from parsync_redis import Parsync

app = Celery("proj")
Parsync(app)


@app.task(name="proj.draw", parsync={})
def draw(tile, size=1):
    return tile


@app.task(name="proj.compare", parsync={})
def compare(one, other):
    return one
"""
OURS = ("PARSYNC_URL", "PARSYNC_CLUSTER", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND")
ENV = {name: value for name, value in os.environ.items() if name not in OURS} | {
    "PYTHONPATH": str(REPO)
}
MODULE = [sys.executable, "-m", "parsync_redis.cli"]


def dev(folder: Path, *words: str) -> Process:
    (folder / "proj.py").write_text(APP)
    env = {**ENV, "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    return Process(
        "dev",
        [*MODULE, "dev", "--schedulers", "1", *words],
        env,
        folder,
        lambda name, line: print(line),
    )


@pytest.mark.serial
def test_the_last_line_is_true_and_an_ended_process_is_reported(tmp_path):
    words = [
        "-A",
        "proj",
        "--pool",
        "solo",
        "--node",
        "cpu",
        "--node",
        "gpu:slots=1,gpu=1,gpu_model=a100,taint=spot",
    ]
    process = dev(tmp_path, *words)
    try:
        until(
            lambda: any("Ctrl-C here" in line for line in process.lines) or not process.alive,
            "it is ready",
        )
        lines = list(process.lines)
        assert any(
            line.startswith("ready: 1 schedulers, 2 nodes with 3 slots, server redis://")
            for line in lines
        )
        commands = [line.strip() for line in lines if line.startswith("  ")]
        shown = [line for line in commands if line != "parsync top"]
        assert "parsync submit proj.draw 1 --wait    # as JSON: tile" in shown
        script = "\n".join(re.sub("^parsync", " ".join(MODULE), line) for line in shown)
        env = {**ENV, "XDG_STATE_HOME": str(tmp_path / "state")}
        done = run(["sh", "-ec", script], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("state:        succeeded") == 2  # of submit, and of status
        assert re.search(r"^gpu .* gpu=1/1 +spot", done.stdout, re.MULTILINE)
        (folder,) = tmp_path.glob("parsync-dev-*")
        assert {path.name for path in folder.iterdir()} == {"cpu.log", "gpu.log", "scheduler-1.log"}

        os.kill(worker_of(process, "cpu"), signal.SIGKILL)
        until(
            lambda: any("cpu ended with code -9" in line for line in process.lines),
            "it tells the end of cpu",
        )
        process.send(signal.SIGINT)
        assert ended(process.popen) == 130
    finally:
        process.send(signal.SIGINT)
        process.end(time.monotonic() + 30)


def worker_of(process: Process, node: str) -> int:
    """Return the worker of a node that this stack started."""
    words = ["pgrep", "-P", str(process.popen.pid), "-f", f"parsync-node {node} "]
    return int(run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.serial
def test_a_stack_that_cannot_become_ready_says_which_process_ended_and_why(tmp_path):
    process = dev(tmp_path, "-A", "proj:nothing", "--workers", "1", "--pool", "solo")
    assert ended(process.popen) == 1
    process.end(time.monotonic() + 5)
    output = "\n".join(process.lines)
    assert "n1 ended with code 2" in output
    assert "nothing" in output.partition("n1 ended")[2]
    assert "ready:" not in output
