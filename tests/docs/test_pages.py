"""The blocks of the pages are real: their Python and console blocks run, one after another, on one
cluster.

The cluster is the one that README.md starts, with `parsync dev`; for docs/gpus.md its node with
devices joins, for the pages of limits and tenants the node of docs/at-most-n.md. A comment after a
print is its output. A test compares the shape of console blocks: numbers and ids may differ.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest
from typer.testing import CliRunner

from parsync_redis import ParsyncClient
from parsync_redis.cli import app
from parsync_redis.cli.stack import Process
from parsync_redis.store.reads.schedulers import read_schedulers
from tests.kit import REPO
from tests.kit.blocks import FILE, RUN, asked, commands, files
from tests.kit.documents import WRITE, Document
from tests.kit.waiting import run, until

ADDRESS = "redis://127.0.0.1:6379/0"
RUNNER = """
import contextlib, io, json, sys, traceback
told = []
for code in json.load(sys.stdin):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "block", "exec"), {"__name__": "block"})
        told.append([out.getvalue(), ""])
    except BaseException:
        told.append([out.getvalue(), traceback.format_exc()])
print(json.dumps(told))
"""
pytestmark = pytest.mark.serial


def line_of(page, *words):
    """Return the command of a page's shell blocks that has these words."""
    found = [
        c for block in Document(page).blocks("sh") for c in commands(block.text) if {*words} <= {*c}
    ]
    assert len(found) == 1, f"{page} has {len(found)} commands with {words}"
    return found[0]


@contextmanager
def started(name, words, env, folder):
    """Run a program of a page in this environment; stop it at the end."""
    command = [
        sys.executable,
        "-m",
        {"parsync": "parsync_redis.cli"}.get(words[0], words[0]),
        *words[1:],
    ]
    process = Process(name, command, env, folder, lambda name, line: print(name, line))
    try:
        yield process
    finally:
        process.send(2)
        process.end(time.monotonic() + 20)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield the folder with the pages' files, and the environment in which their lines run."""
    folder = tmp_path_factory.mktemp("pages")
    for name, texts in files().items():
        (folder / name).write_text(min(texts))
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PARSYNC_", "CELERY_"))
    }
    env = {**ours, "PYTHONPATH": f"{REPO}:{folder}", "PYTHONUNBUFFERED": "1"}
    with started("dev", line_of("README.md", "parsync", "dev"), env, folder) as dev:
        said = re.compile(r"\b((?:PARSYNC|CELERY)_\w+)=(\S+)")
        exports = until(
            lambda: exported(dict(said.findall("\n".join(list(dev.lines))))), "the exports"
        )
        env |= exports
        until_up(env, {"n1", "n2"})
        yield folder, env


def exported(found):
    """Return the variables to export, once all are there; as a shell would set them, which knows
    `$PARSYNC_URL`.
    """
    if not {"PARSYNC_URL", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"} <= found.keys():
        return None
    return {
        name: found["PARSYNC_URL"] if value == "$PARSYNC_URL" else value
        for name, value in found.items()
    }


def until_up(env, names):
    """Wait until these nodes are up, and two schedulers."""
    with ParsyncClient.from_url(env["PARSYNC_URL"]) as client:
        until(
            lambda: {node.name for node in client.nodes() if node.state == "up"} == names,
            f"{names} are up",
        )
        until(lambda: len(read_schedulers(client.store)) == 2, "the schedulers")


NODES = {
    "docs/gpus.md": ("g1", "docs/gpus.md", "celery", "gpu=0,1"),
    "docs/at-most-n.md": ("s1", "docs/at-most-n.md", "celery", "shop"),
    "docs/share-a-cluster.md": ("s1", "docs/at-most-n.md", "celery", "shop"),
}
"""The node of a page whose tasks need one: its name, and words of the line that starts it."""


@contextmanager
def with_nodes(cluster, *pages):
    """Let the cluster have the nodes of these pages, and no policy."""
    folder, env = cluster
    nodes = {NODES[page] for page in pages if page in NODES}
    with ExitStack() as stack:
        for name, *line in nodes:
            stack.enter_context(started(name, line_of(*line), env, folder))
        until_up(env, {"n1", "n2", *(name for name, *_ in nodes)})
        with ParsyncClient.from_url(env["PARSYNC_URL"]) as client:
            if client.policy().text:
                client.apply_policy("", by="a test")
        yield


# -- console ---------------------------------------------------------------------------------------


def shape(text):
    """Return the shape: no numbers, ids, units of time, or widths; of the server's own facts only
    their names.
    """
    text = re.sub(
        r"^(ok|warn) +(server|allocator|lists|persistence)\b.*", r"\2", text, flags=re.MULTILINE
    )
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]+)*\b|\b[0-9a-f]{16,}\b", "ID", text)
    text = re.sub(r"\b(\d+(\.\d+)? ?(ms|us|s|m|h|d))+\b", "N s", text)
    text = re.sub(r"\d+(\.\d+)*(e[+-]?\d+)?", "N", text)
    lines = (" ".join(line.split()) for line in text.strip().splitlines())
    # WAITING, which look-ahead fills in
    return [re.sub(r"^(nN up( N){5}) N/N ", r"\1 ", line) for line in lines]


READING = ("limits", "tenants", "explain", "plan")
"""Commands that change nothing, and show tasks that may be on their way to a node."""


def answer(line, shown, url):
    """Return what a line prints. A line that reads is asked again until it prints what is shown."""
    words = shlex.split(line)[1:]
    given = {"PARSYNC_URL": url, "COLUMNS": "120", "LOGNAME": "maria"}
    is_repeated = words[0] in READING and not WRITE
    if WRITE and words[0] in READING:
        time.sleep(2)
    deadline_s = time.monotonic() + 60
    while True:
        output = CliRunner().invoke(app, words, env=given, catch_exceptions=False).output
        is_over = not is_repeated or time.monotonic() > deadline_s
        if is_over or shape(output) == shape(shown):
            return output
        time.sleep(0.1)


@pytest.mark.parametrize("page", [page for page in RUN if Document(page).blocks("console")])
def test_the_console_blocks_show_what_the_commands_print(page, cluster, monkeypatch):
    folder, env = cluster
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("PARSYNC_")]:
        monkeypatch.delenv(name)
    document = Document(page)
    written = []
    with with_nodes(cluster, page):
        for block in document.blocks("console"):
            session = ""
            for line, shown in asked(block):
                output = answer(line, shown, env["PARSYNC_URL"])
                session += f"$ {line}\n{output}"
                assert WRITE or shape(shown) == shape(output), f"{line} shows:\n{output}"
            written.append((block, session))
    if WRITE:
        document.replace(written)


# -- Python ----------------------------------------------------------------------------------------


def expected(code):
    """Return the output of each print of a block, as a pattern; None if it does not say."""
    found = re.findall(r"^ *(print\(.*?\))(?:  # (.*))?$", code, re.MULTILINE)
    return [re.escape(said).replace(r"\.\.\.", ".*") if said else None for _, said in found]


def test_the_python_blocks_run_and_print_the_output_in_their_comments(cluster):
    folder, env = cluster
    found = [
        (page, block)
        for page in RUN
        for block in Document(page).blocks("python")
        if not FILE.match(block.text)
    ]
    found += [
        ("a file", block) for block in Document("docs/coming-from-queues.md").blocks("python")
    ]
    codes = [block.text.replace(ADDRESS, env["PARSYNC_URL"]) for _, block in found]
    command = [sys.executable, "-c", RUNNER]
    given = json.dumps(codes)
    with with_nodes(cluster, *NODES):
        done = run(command, input=given, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    for (page, block), code, (out, error) in zip(
        found, codes, json.loads(done.stdout), strict=True
    ):
        where = f"{page}: {block.heading}"
        assert not error, f"{where}\n{error}"
        lines = out.splitlines()
        patterns = expected(code)
        assert len(lines) == len(patterns), f"{where} prints\n{out}"
        for line, pattern in zip(lines, patterns, strict=True):
            assert pattern is None or re.fullmatch(pattern, line), f"{where} prints {line}"
