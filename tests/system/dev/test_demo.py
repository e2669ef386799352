"""`make demo`, without make: it ends well with the right figures, and leaves no process however it
ends.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from examples.demo.app import RUNS_KEY
from parsync_redis.store.server.connection import connect
from tests.kit.waiting import limited, until

COUNTS = ["submitted", "succeeded", "failed", "lost", "ran_twice"]
KEYS = [*COUNTS, "conflicts", "delay_ms", "by_node", "wall_s", "server", "schedulers", "nodes"]
DEMO = [sys.executable, "-m", "examples.demo"]

pytestmark = pytest.mark.serial


class Marked:
    """Finds processes by a mark in their environment, which children inherit."""

    def __init__(self, **env):
        self.mark = f"PARSYNC_MARK_{uuid.uuid4().hex}=1"
        name, _, value = self.mark.partition("=")
        self.env = {**os.environ, name: value, **env}

    def running(self):
        """Return the command line and the environment of each."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command, env = (
                    (folder / name).read_bytes().decode(errors="replace").split("\0")
                    for name in ("cmdline", "environ")
                )
            except OSError:
                continue  # the process has ended meanwhile, or is not ours
            if self.mark in env:
                found.append((" ".join(command), env))
        return found

    def server(self):
        """Return a client of the server that they use."""
        words = (word.partition("=") for _, env in self.running() for word in env)
        return connect(next(value for name, _, value in words if name == "PARSYNC_URL"))


def start(marked, *words):
    return subprocess.Popen(
        [*DEMO, *words],
        env=marked.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_demo_measures_modules_on_all_nodes_and_writes_its_figures(tmp_path):
    marked = Marked()
    out = tmp_path / "new" / "demo.json"
    words = ["--limit", "25", "--out", str(out)]
    done = subprocess.run(
        [*DEMO, *words], env=marked.env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    assert sorted(report) == sorted(KEYS)
    assert {name: report[name] for name in COUNTS} == {
        "submitted": 25,
        "succeeded": 25,
        "failed": 0,
        "lost": 0,
        "ran_twice": 0,
    }
    assert 0 <= report["delay_ms"]["p50"] <= report["delay_ms"]["p99"]
    assert (report["schedulers"], report["nodes"], len(report["by_node"])) == (3, 4, 4)
    assert sum(node["tasks"] for node in report["by_node"].values()) == 25
    assert all(
        set(node) == {"slots", "score", "tasks", "labels"} for node in report["by_node"].values()
    )
    assert report["server"].startswith(("Redis ", "Valkey "))
    modules = json.loads((out.parent / "demo-modules.json").read_text())
    assert len(modules) == 25
    assert all(module["lines"] >= 0 for module in modules)
    for text in (
        "delay ",
        "conflicts ",
        "view age ",
        "most complex functions",
        "try next",
        report["server"],
    ):
        assert text in done.stdout
    assert marked.running() == []


@pytest.mark.parametrize("when", ["starting", "measuring", "twice"])
def test_ctrl_c_leaves_no_process_behind(tmp_path, when):
    marked = Marked()
    demo = start(marked, "--out", str(tmp_path / "demo.json"))
    lines = []
    with limited(demo, "it says what it does"):
        for line in demo.stdout:  # limit: the block's
            lines.append(line)
            if line.startswith("starting" if when == "starting" else "measuring"):
                break
    if when == "measuring":
        with marked.server() as server:
            until(lambda: server.llen(RUNS_KEY), "a task runs")
    there = len(marked.running())
    demo.send_signal(signal.SIGINT)
    if when == "twice":
        until(lambda: len(marked.running()) < there, "its processes end")
        demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=180)
    assert demo.returncode == 130, "".join(lines) + rest
    assert "Traceback" not in rest
    assert marked.running() == []
    assert not (tmp_path / "demo.json").exists()


def test_a_server_that_does_not_start_is_one_clear_error(tmp_path):
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    program.chmod(0o755)
    marked = Marked(PATH=f"{tmp_path}:{os.environ['PATH']}")
    demo = start(marked, "--limit", "1", "--out", str(tmp_path / "demo.json"))
    said, _ = demo.communicate(timeout=180)
    assert demo.returncode == 2
    assert "did not start" in said
    assert "Traceback" not in said
    assert marked.running() == []
