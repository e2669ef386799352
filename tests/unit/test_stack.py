"""A local stack leaves nothing running, whatever its processes do."""

import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from parsync_redis.cli.stack import LocalStack
from tests.kit.waiting import until

STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); "
    "time.sleep(600)"
)
PARENT = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print(child.pid, flush=True); time.sleep(600)"
)


class Lines(list[tuple[str, str]]):
    """A sink that can be waited on."""

    def __init__(self):
        super().__init__()
        self._came = threading.Condition()

    def __call__(self, name, line):
        with self._came:
            self.append((name, line))
            self._came.notify_all()

    def first(self):
        with self._came:
            assert self._came.wait_for(lambda: self, timeout=60)
        return self[0]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_lines_go_to_the_sink_and_to_files(tmp_path):
    lines = Lines()
    with LocalStack(sink=lines, logs=tmp_path / "logs") as stack:
        process = stack.start("a", [sys.executable, "-c", "print('one'); print('two')"])
        process.end(time.monotonic() + 20)
        assert lines == [("a", "one"), ("a", "two")]
        assert (tmp_path / "logs" / "a.log").read_text() == "one\ntwo\n"
        assert list(process.lines) == ["one", "two"]
        assert stack.alive() == []


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace():
    lines = Lines()
    with LocalStack(sink=lines, grace_s=0.2) as stack:
        process = stack.start("stubborn", [sys.executable, "-c", STUBBORN])
        lines.first()
    assert process.popen.returncode == -9
    assert ("stubborn", "(does not stop: killed)") in lines


@pytest.mark.parametrize("how", ["kill", "terminate", "stop"])
def test_the_children_of_a_process_end_with_the_process(how):
    lines = Lines()
    with LocalStack(sink=lines) as stack:
        stack.start("parent", [sys.executable, "-c", PARENT])
        child = int(lines.first()[1])
        assert is_running(child)
        if how == "stop":
            stack.stop()
        else:
            getattr(stack, how)("parent")
        until(lambda: not is_running(child))
        assert stack.alive() == []


def test_a_running_program_is_not_started_twice_but_an_ended_program_may_start_again():
    with LocalStack(grace_s=0.2) as stack:
        stack.start("a", [sys.executable, "-c", "import time; time.sleep(600)"])
        with pytest.raises(ValueError, match="a runs already"):
            stack.start("a", [sys.executable, "-c", ""])
        stack.kill("a")
        stack.start("a", [sys.executable, "-c", ""])


def test_addresses_go_by_environment_so_that_no_password_is_in_a_command_line():
    with LocalStack("demo", url="redis://:secret@127.0.0.1:1/0") as stack:
        names = stack.scheduler(2, lease_s=1.5)
        assert names == ["scheduler-1", "scheduler-2"]
        stack.worker(
            "app",
            "n1",
            slots=2,
            score=9.5,
            labels={"zone": "a"},
            resources={"mem": "4GiB"},
            pool="solo",
        )
        commands = [
            " ".join(cast(list[str], process.popen.args)) for process in stack.processes.values()
        ]
    assert not any("secret" in command for command in commands)
    assert commands[1].endswith("scheduler --name scheduler-2 --lease-s 1.5")
    assert (
        "-A app worker --parsync-node n1 -P solo --parsync-slots 2 --parsync-score 9.5 "
        "--parsync-label zone=a "
        "--parsync-resource mem=4GiB -c 2 --without-mingle --without-gossip --without-heartbeat -n "
        "n1@%h"
    ) in commands[2]
