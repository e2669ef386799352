"""The commands that list, on a cluster that stands still: filters, ids by their beginning, one
node, 80 columns.
"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from contextlib import ExitStack, contextmanager

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app, main
from parsync_redis.model.task import TaskState
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.cancel import server_ms
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver
from tests.kit.waiting import child_ended

TAIL = "-0000-4000-8000-00000000000"
LONG, SHORT, PLACED, WAITS, OTHER, FAILED = (
    f"{head}{TAIL}{n}"
    for n, head in enumerate(
        ("aaaa0001", "aaaa0002", "bbbb0001", "cccc0001", "cccc0002", "dddd0001"), 1
    )
)
GPU = {"resources": {"gpu": 1, "mem": "4GiB"}}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return the address of a cluster without processes: n1 runs two tasks and is drained, gpu-2
    has one placed; two wait, one failed.
    """
    with EmbeddedServer() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("PARSYNC_URL", server.url),
            ("PARSYNC_CLUSTER", "shown"),
            ("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state"))),
        ):
            patch.setenv(name, value)
        patch.delenv("COLUMNS", raising=False)
        store = Store.from_url(server.url, "shown")
        join_cluster(
            store, Settings.load(url=server.url, cluster="shown", partitions=1), create=True
        )
        fill(Driver(store))
        store.client.close()
        yield server


def fill(drive):
    store = drive.store
    commands = drive.commands
    drive.node("n1", 3, {"gpu": 2, "mem": "16GiB"}, {"zone": "a"})
    drive.node("gpu-2", 1, {"mem": "8GiB"})
    store.run(commands.renew_scheduler("s1", stats={"placed": 3, "delay_ms": 2.5}))
    now_ms = server_ms(store)

    def place(id, name, node, slot, options=None):
        assert drive.submit(id, options, name) == "submitted"
        needs = drive.line(id).kind.partition(" ")[2]
        return drive.held(id, drive.take()[id], node, (slot,), needs=needs)

    runs = [
        (place(LONG, "proj.train", "n1", 0, GPU), 7_200_000),
        (place(SHORT, "proj.render", "n1", 1, {"resources": {"mem": "1.5GiB"}}), 1000),
    ]
    for run_, ago_ms in runs:
        assert drive.start(run_) == "ok"
        key = store.keys.in_shard_of("running", run_.task)
        store.client.hset(key, run_.task, f"{run_.text} started={now_ms - ago_ms}")
    drive.confirm(place(PLACED, "proj.render", "gpu-2", 0))
    assert drive.submit(FAILED, None, "proj.train") == "submitted"
    failed = drive.place(FAILED, drive.take()[FAILED], "n1", 2)
    assert (drive.start(failed), drive.finish(failed, TaskState.FAILED, "out of memory")) == (
        "ok",
        "ok",
    )
    for id, name in ((WAITS, "proj.train"), (OTHER, "proj.render")):
        assert drive.submit(id, None, name) == "submitted"
    store.run(commands.set_node(0, "n1", "drain", None, "deadline_s=600: a new disk"))


def parsync(*words):
    return CliRunner().invoke(app, words)


def listed(*words):
    result = parsync("tasks", "--json", *words)
    assert result.exit_code == 0, result.output
    return [task["id"] for task in json.loads(result.stdout)]


# -- tasks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--sort", "run"], [LONG, SHORT, PLACED, WAITS, OTHER]),  # tasks without a run come last
        (["--sort", "run", "--limit", "1"], [LONG]),
        (["--holds", "gpu"], [LONG]),
        (["--holds", "mem", "--sort", "name"], [SHORT, LONG]),
        (["--node", "gpu-2"], [PLACED]),
        (["--node", "n1", "--name", "*.render"], [SHORT]),
        (["--node", "n1", "--state", "failed"], [FAILED]),
        (["--name", "proj.train", "--state", "waiting"], [WAITS]),
        (["--name", "proj.t*", "--state", "any", "--sort", "ended"], [FAILED, LONG, WAITS]),
        (["--older-than", "1h"], []),
        (["--state", "ended"], [FAILED]),
    ],
)
def test_filters_and_orders(address, words, found):
    assert listed(*words) == found


def test_json_is_exact_and_a_table_is_for_people(address):
    (task,) = json.loads(parsync("tasks", "--json", "--holds", "gpu").stdout)
    assert task["needs"] == "slots=1 gpu=1 mem=4294967296"
    assert task["times"]["started"] > 10**12
    line = parsync("tasks", "--holds", "gpu").stdout.splitlines()[1]
    assert line.split()[:4] == [LONG, "proj.train", "running", "n1/0"]
    assert "2h" in line.split()
    assert "mem=4GiB" in line


def test_a_partial_answer_is_marked_as_partial(address, monkeypatch):
    assert (
        "1 tasks are listed, and there may be more: --limit"
        in parsync("tasks", "--limit", "1").stderr
    )
    monkeypatch.setattr("parsync_redis.store.reads.find_tasks.MAX_LOOKED", 1)
    assert (
        "this answer is a part: 3 tasks were looked at" in parsync("tasks", "--sort", "name").stderr
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["tasks", "--sort", "size"],
            "--sort 'size' is not known: known are age, run, ended, name, node",
        ),
        (["tasks", "--older-than", "soon"], "--older-than 'soon' is not valid"),
        (["tasks", "--holds", "gpu", "--state", "failed"], "--state failed holds nothing"),
        (["tasks", "--watch"], "--watch needs a terminal"),
        (
            ["nodes", "--watch", "5", "--json"],
            "--watch draws on a terminal, --json is for programs",
        ),
        (["top"], "parsync top needs a terminal"),
        (["nodes", "gpu-3"], "no node 'gpu-3': there are gpu-2"),
        (
            ["status", "aaaa"],
            f"'aaaa' is the beginning of several ids: {LONG}, {SHORT}: give more of one",
        ),
        (
            ["status", "last"],
            "`last` is the task that you submitted last with `parsync submit` to cluster shown",
        ),
    ],
)
def test_a_mistake_on_the_command_line_prints_one_line(address, words, says):
    result = parsync(*words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr


# -- ids -------------------------------------------------------------------------------------------


def test_a_beginning_finds_tasks_in_every_state(address):
    for id in (LONG, PLACED, WAITS, FAILED):
        assert f"task:         {id}\n" in parsync("status", id[:8]).stdout
    # as a table shows one that it cut
    assert f"task:         {LONG}\n" in parsync("status", f"{LONG[:10]}…").stdout
    assert parsync("explain", "cccc0001").stdout.startswith(f"task {WAITS} (")
    assert parsync("dead", "show", "dddd").stdout.startswith(f"task:         {FAILED}")
    for unknown in ("aaa", "ffff"):  # too short to be a beginning; the beginning of none
        assert parsync("status", unknown).stdout.startswith(
            f"task {unknown}: nothing is known of it"
        )


def test_last_is_the_task_that_was_submitted_last_from_here(address):
    for id in ("first", "second"):
        assert (
            parsync(
                "submit", "proj.render", "--id", id, "--wait-for-capacity", "--require", "zone=z"
            ).exit_code
            == 0
        )
        assert parsync("status", "last").stdout.startswith(f"task:         {id}\n")
    assert parsync("cancel", "last", "firs").stdout == "second cancelled\nfirst cancelled\n"
    near = parsync("submit", "proj.render", "--near", "aaaa0001", "--id", "third")
    assert near.exit_code == 0, near.output
    assert parsync("cancel", "third").exit_code == 0


def test_a_wish_to_be_near_takes_the_beginning_of_an_id_and_is_shown_with_the_node(address):
    words = ("submit", "proj.render", "--prefer", "near:aaaa0001", "--prefer", "pack")
    wish = parsync(*words, "--id", "wishing")
    assert wish.exit_code == 0, wish.output
    node = json.loads(parsync("status", LONG, "--json").stdout)["node"]
    assert f"prefers:      near:{node}, pack\n" in parsync("status", "wishing").stdout
    assert parsync("cancel", "wishing").exit_code == 0
    unknown = parsync("submit", "proj.render", "--prefer", "near:nobody")
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "error: prefer 'near:nobody' is not valid: no task with that id is known, or it is "
        "forgotten\n",
    )


def test_a_folder_that_cannot_be_written_is_a_warning(address, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    result = parsync("submit", "proj.render", "--id", "fourth")
    assert (result.exit_code, result.stdout) == (0, "fourth\n")
    assert result.stderr.startswith("warning: `last` will not mean this task: ")
    assert parsync("cancel", "fourth").exit_code == 0


# -- one node --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("nodes", "n1"),
        ("nodes", "--wide"),
        ("partitions",),
        ("plan", "proj.train", "--require", "zone=a"),
    ],
)
def test_labels_are_spelled_alike_wherever_they_are_printed(address, words):
    stdout = parsync(*words).stdout
    assert "zone:a" in stdout
    assert "zone=a" not in stdout


def test_the_command_shows_a_single_node_in_full(address):
    lines = parsync("nodes", "n1").stdout.splitlines()
    assert {
        "node:      n1",
        "state:     draining, deadline 10m after it began: a new disk",
        "slots:     2 of 3 held, 0 open to tasks",
        "left:      gpu=1/2 mem=10.5GiB/16GiB",
        "labels:    zone:a",
        "tasks that wait and that it could hold: 2",
        "last failures there",
    } <= set(lines)
    (row,) = (line.split() for line in lines if LONG in line)
    assert row == ["0", LONG, "proj.train", "running", "2h", "gpu=1", "mem=4GiB"]
    answer = json.loads(parsync("nodes", "n1", "--json").stdout)
    assert answer["node"]["left"]["mem"] == 10.5 * 2**30
    assert (answer["node"]["state"], answer["node"]["draining"]) == ("draining", True), (
        "in the word that people read"
    )
    assert [one["task"] for one in answer["occupants"]] == [LONG, SHORT]
    assert [(one["id"], one["why"]) for one in answer["failures"]] == [(FAILED, "out of memory")]


# -- a terminal ------------------------------------------------------------------------------------


def run_here(words):
    """Run a command in this child of a fork, which saves it the imports, and end with its exit
    code.
    """
    code = 70
    try:
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(fd, mode) for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        sys.argv = ["parsync", *words]
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)


@contextmanager
def terminal(*words, columns=80, lines=24):
    """Run a command on a terminal of its own; yields what reads its output until a text is in it,
    and its input.
    """
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        run_here(words)
    told: list[str] = []

    def read(text=None):
        deadline_s = time.monotonic() + 60
        while text is None or text not in "".join(told):
            assert time.monotonic() < deadline_s, f"{text!r} is not in {''.join(told)[-2000:]!r}"
            if select.select([fd], [], [], 1)[0]:
                try:
                    some = os.read(fd, 65536)  # limit: select has seen something
                except OSError:  # the command has ended
                    some = b""
                if not some:
                    break
                told.append(some.decode())
        found = "".join(told).replace("\r\n", "\n")
        told.clear()
        return found

    try:
        yield pid, read, lambda keys: os.write(fd, keys)
    finally:
        os.close(fd)


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize(
    "words", [["tasks"], ["nodes"], ["nodes", "n1"], ["schedulers"], ["explain", WAITS]], ids=str
)
def test_at_80_columns_no_line_is_longer_and_no_id_is_broken(address, words):
    with terminal(*words) as (pid, read, _):
        lines = plain(read()).splitlines()
        assert child_ended(pid) == 0
    whole = 1 if words[0] == "explain" else 0  # the first line of the output has the whole id
    assert max(map(len, lines[whole:])) <= 80
    if words == ["tasks"]:
        assert [line[:8] for line in lines if re.match("[a-d]{4}000", line)][:2] == [
            "aaaa0001",
            "aaaa0002",
        ] or ({"aaaa0001", "aaaa0002"} <= {line[:8] for line in lines})
        assert lines[0].split() == ["ID", "NAME", "STATE", "PLACE", "AGE", "RUN", "NEEDS"]


def test_watch_and_top_survive_a_server_that_goes_away(address, monkeypatch):
    with EmbeddedServer() as server, ExitStack() as opened:
        monkeypatch.setenv("PARSYNC_URL", server.url)
        store = Store.from_url(server.url, "shown")
        join_cluster(
            store, Settings.load(url=server.url, cluster="shown", partitions=1), create=True
        )
        Driver(store).node("gpu-2")
        watch, read, press = opened.enter_context(terminal("nodes", "--watch", "0.1"))
        top, see, type_ = opened.enter_context(terminal("top", "--every", "0.2", lines=40))
        assert "every 100ms, Ctrl-C ends it" in plain(read("gpu-2"))
        assert "schedulers " in plain(see("longest runs"))
        server.process.terminate()
        server.process.wait(60)
        read("it is tried again")
        see("it is tried again")
        server.restart()
        read("no scheduler has joined")  # this server keeps nothing
        press(b"\x03")
        assert os.waitstatus_to_exitcode(child_ended(watch)) == 130
        see("nodes: 0")
        type_(b"q")
        assert os.waitstatus_to_exitcode(child_ended(top)) == 0


# -- the shell -------------------------------------------------------------------------------------


def completed(*words, **env):
    line = {"COMP_WORDS": " ".join(("parsync", *words)), "COMP_CWORD": str(len(words))}
    result = CliRunner().invoke(
        app, [], env={"_PARSYNC_COMPLETE": "complete_bash", **line, **env}, prog_name="parsync"
    )
    assert (result.stderr, result.exit_code) == ("", 0)
    return result.stdout.split()


def test_a_shell_completes_from_the_cluster_and_is_silent_without_one(address):
    assert completed("nodes", "g") == ["gpu-2"]
    assert sorted(completed("status", "aaaa")) == [LONG, SHORT]
    assert completed("nodes", "g", PARSYNC_URL="redis://127.0.0.1:1/0") == []


def test_the_version_is_that_of_the_package():
    assert re.fullmatch(r"parsync \d+\.\d+\.\d+\n", parsync("--version").stdout)
