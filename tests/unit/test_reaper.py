"""The processes that a test run has started end with the run, however the run ends."""

import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.kit import REPO
from tests.kit.reaper import marked
from tests.kit.waiting import ended, run, until

TEST = """
import os, pathlib, subprocess, time
from parsync_redis.store.server.embedded import EmbeddedServer

def test_waits():
    shell = ["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"]
    with EmbeddedServer() as server:
        alone = subprocess.Popen(["sleep", "600"], start_new_session=True)
        orphan = subprocess.run(shell, stdout=subprocess.PIPE, check=True, timeout=60).stdout
        ids = [os.getpid(), server.process.pid, alone.pid, int(orphan)]
        pathlib.Path("new").write_text(" ".join([os.environ["TMPDIR"], *map(str, ids)]))
        pathlib.Path("new").rename("started")
        time.sleep(600)
"""
"""A test that starts a server, a session of its own, and a program that has lost its parent."""
PROGRAM = f"from tests.kit import reaper\nreaper.watch()\n{TEST}\ntest_waits()"
OPTIONS = [
    "-c",
    REPO / "pyproject.toml",
    "--rootdir",
    REPO,
    "-p",
    "conftest",
    "-p",
    "no:cacheprovider",
]
RUNS = {
    "pytest that is interrupted": (
        ["-m", "pytest", *OPTIONS, "-n", "1", "test_run.py"],
        signal.SIGINT,
    ),
    "a program that is killed": (["-c", PROGRAM], signal.SIGKILL),
}


def is_over(handle):
    """Return whether the process of this handle has ended."""
    return bool(select.select([handle], [], [], 0)[0])


@pytest.mark.parametrize(("words", "how"), RUNS.values(), ids=RUNS)
def test_the_reaper_ends_all_programs_of_an_ended_run(tmp_path, words, how):
    (tmp_path / "test_run.py").write_text(TEST)
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=env, stdout=output, stderr=output
        )
    try:
        started = tmp_path / "started"
        until(
            lambda: started.exists() or process.poll() is not None,
            "the run has started its processes",
        )
        folder, *ids = started.read_text().split()
        handles = [os.pidfd_open(int(pid)) for pid in ids]
        assert Path(folder).is_dir()
        process.send_signal(how)
        ended(process)
        for handle in handles:
            until(partial(is_over, handle), "a process of the run ends")
            os.close(handle)
        until(lambda: not Path(folder).exists(), "its folder for temporary files is removed")
    finally:
        print((tmp_path / "output").read_text())
        process.kill()


def test_a_program_that_the_reaper_would_not_find_is_refused(tmp_path):
    bare = {"PATH": os.environ["PATH"]}
    with pytest.raises(RuntimeError, match=r"\['true'\] would outlive the tests: its environment"):
        subprocess.Popen(["true"], env=bare)
    (tmp_path / "redis-server").symlink_to("/bin/true")
    server = [tmp_path / "redis-server"]
    with pytest.raises(RuntimeError, match="would outlive the tests: a server needs a folder"):
        subprocess.Popen(server, cwd="/")
    for command, cwd in ((["true"], "/"), (server, tmp_path)):
        assert run(command, cwd=cwd, env={**bare, **marked()}).returncode == 0
