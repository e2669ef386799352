"""docs/inspect.md is true: its redis-cli lines run on a cluster of real processes, and print what the page shows.

The test compares the shape: numbers and the order of lines may differ. The redis-cli is the one on
the PATH. Without redis-cli the words go through redis-py, and the reply is printed as redis-cli
would print it; with redis-cli a test compares the two outputs.
"""

import os
import re
import shlex
import shutil
import signal
from functools import partial
from typing import Any

import pytest
import redis

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.reads.schedulers import read_schedulers
from tests.kit import REPO
from tests.kit.apps.project import PROJ
from tests.kit.documents import WRITE, Document
from tests.kit.waiting import run, until

PATH = "docs/inspect.md"
A100 = {"require": {"gpu_model": "a100"}, "resources": {"gpu": 1}}


# -- the cluster that the document looks at --------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield the address of a cluster: two schedulers; n1 is full, n2 drained, n3 lost with two
    unread doorbells; some tasks wait.
    """
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "proj.py").write_text(PROJ)
    options: dict[str, Any] = {
        "sink": lambda name, line: print(name, line),
        "env": {"PYTHONPATH": str(REPO)},
    }
    with LocalStack("demo", cwd=folder, grace_s=3, **options) as stack:
        url = stack.server()
        with ParsyncClient.from_url(url, "demo") as client:
            bring_about(stack, client)
            try:
                yield url
            finally:
                for node in ("n1", "n2", "n3"):
                    stack.kill(node)


def bring_about(stack, client):
    """Bring the cluster into the state that the document shows."""

    def states(*ids):
        return {client.status(id).state.value for id in ids}

    def node(name):
        return next((n for n in client.nodes() if n.name == name), None)

    stack.scheduler(2, partitions=2, lease_s=5)
    offers = {
        "n1": (4, 9.5, {"gpu_model": "a100"}, {"gpu": 4}),
        "n2": (2, 1.0, None, {"mem": "4GiB"}),
        "n3": (2, 5.0, {"zone": "b"}, None),
    }
    # one after another: so the deal is always the same
    for name, (slots, score, labels, resources) in offers.items():
        stack.worker("proj", name, slots, score, labels, resources, pool="threads")
        until(partial(node, name), f"node {name}")
    for at in range(1, 5):
        client.submit("proj.render", [3600], id=f"t{at}", **A100)
    until(lambda: states("t1", "t2", "t3", "t4") == {"running"})
    client.submit("proj.render", [1], id="w1", priority=5, **A100)
    client.submit(
        "proj.render", [1], id="w2", require={"gpu_model": "h100"}, wait_for_capacity=True
    )
    client.submit("proj.render", [1], id="l1", countdown=3600)
    client.submit("proj.render", [1], id="e1", countdown=3600)
    client.cancel("e1")
    until(lambda: all(client.status(id).why for id in ("w1", "w2")))

    # the guard too, so that the lease of the node is lost
    os.killpg(stack.processes["n3"].popen.pid, signal.SIGSTOP)
    # closed, so that nobody reads the inbox of n3; the other nodes ask again
    for waiting in client.store.client.client_list():
        if waiting["cmd"] == "blmpop":
            client.store.client.client_kill_filter(_id=waiting["id"])
    for id in ("d1", "d2"):
        client.submit("proj.render", [1], id=id, require={"zone": "b"})
    until(lambda: states("d1", "d2") == {"placed"})
    client.drain("n2")
    until(lambda: all(s.stats.get("free") == "0" for s in read_schedulers(client.store)))
    for id in ("p1", "p2"):
        client.submit("proj.render", [1], id=id)
    until(lambda: node("n3").state == "down" and states("d1", "d2", "p1", "p2") == {"waiting"})
    until(lambda: all(sees(kind) for kind in client.demand()))


def sees(kind):
    """Return whether the written reason of this kind says that n3 is lost."""
    return kind.why and (
        "gpu_model" in kind.needs or re.search(r"n3 (is|fits: it is) down", kind.why)
    )


# -- redis-cli -------------------------------------------------------------------------------------


def redis_cli(url, words):
    """Return the output of redis-cli on a terminal, or None where there is no redis-cli."""
    program = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if program is None:
        return None
    done = run([program, "-u", url, "--no-raw", *words], capture_output=True, text=True, check=True)
    return done.stdout


def shim(url, words):
    """Return what redis-cli would print for these words, by redis-py."""
    with redis.Redis.from_url(url, protocol=2) as client:
        client.response_callbacks.clear()
        return show(client.execute_command(*words))


def show(reply, indent=""):
    """Return a reply as redis-cli shows it."""
    if reply is None:
        return "(nil)\n"
    if isinstance(reply, int):
        return f"(integer) {reply}\n"
    if isinstance(reply, bytes):
        text = reply.decode().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{text}"\n'
    if not reply:
        return "(empty array)\n"
    width = len(str(len(reply)))
    lines = [
        f"{at:>{width}}) {show(item, indent + ' ' * (width + 2))}"
        for at, item in enumerate(reply, 1)
    ]
    return indent.join(lines)


def shape(text):
    """Return the shape: no numbers, no order, no cluster's id."""
    lines = (
        re.sub(r"\d+(\.\d+)?", "N", re.sub('"[0-9a-f]{16}"', '"ID"', line))
        for line in text.splitlines()
    )
    return sorted(" ".join(line.split()) for line in lines)


def asked(block):
    """Yield (the line, the words after redis-cli, what is shown) of each question in a block."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        program, *words = shlex.split(line)
        assert program == "redis-cli", f"{line!r} is no line for redis-cli"
        yield line, words, shown


@pytest.mark.serial
def test_each_line_answers_as_the_document_shows(cluster):
    document = Document(PATH)
    blocks = document.blocks("console")
    assert len({block.heading for block in blocks}) >= 10
    written = []
    for block in blocks:
        told = ""
        for line, words, shown in asked(block):
            by_shim = shim(cluster, words)
            real = redis_cli(cluster, words) or by_shim
            told += f"$ {line}\n{real}"
            assert shape(by_shim) == shape(real), f"redis-cli does not show {line} as the shim does"
            assert WRITE or shape(shown) == shape(real), f"{line} shows:\n{real}"
        written.append((block, told))
    if WRITE:
        document.replace(written)


def test_the_shim_shows_replies_as_redis_cli_does():
    assert show([b'say\n"a"', 3, None, [], [b"x", [b"y"]]]) == (
        '1) "say\\n\\"a\\""\n2) (integer) 3\n3) (nil)\n4) (empty array)\n5) 1) "x"\n   2) 1) "y"\n'
    )
