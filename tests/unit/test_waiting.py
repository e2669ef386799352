"""No test waits without a limit: a process, thread or peer that never answers fails the test with a
sentence.
"""

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.kit import TESTS
from tests.kit.waiting import (
    child_ended,
    ended,
    happened,
    joined,
    limited,
    read_some,
    run,
    said,
    until,
)

RUNS = ("run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")
PIPES = ("stdout", "stderr")
EXCUSE = "# limit: "
"""A comment on the line, or the one above, that says why this wait ends: its thread is a daemon,
for example.
"""


def unlimited(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each wait without a limit."""
    tree = ast.parse(text)
    lines = text.splitlines()
    awaited = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Await)}
    for node in ast.walk(tree):
        words = ""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and id(node) not in awaited
        ):
            words = _of_call(node, node.func)
        elif (
            isinstance(node, ast.For)
            and isinstance(node.iter, ast.Attribute)
            and node.iter.attr in PIPES
        ):
            words = f"for ... in {ast.unparse(node.iter)}"
        line = getattr(node, "lineno", 0)
        if words and not any(EXCUSE in text for text in lines[max(0, line - 2) : line]):
            yield line, words


def _of_call(call: ast.Call, function: ast.Attribute) -> str:
    name = function.attr
    owner = ast.unparse(function.value)
    bare = not call.args and not call.keywords
    limited = any(word.arg == "timeout" for word in call.keywords)
    found = (
        (name in ("wait", "join", "get", "result") and bare)
        or (name == "communicate" and not limited)
        or (owner == "subprocess" and name in RUNS and not limited)
        or (owner == "os" and name in ("wait", "wait3", "wait4", "waitid", "read"))
        or (owner == "os" and name == "waitpid" and "WNOHANG" not in ast.unparse(call))
        or name in ("recv", "recv_into", "recvfrom", "accept")
        or (name in ("read", "readline", "readlines") and owner.rpartition(".")[2] in PIPES)
    )
    return f"{owner}.{name}(...)" if found else ""


def test_no_test_waits_without_a_limit() -> None:
    found = [
        f"{file.relative_to(TESTS.parent)}:{line}: {words}"
        for file in sorted([*TESTS.rglob("*.py"), *TESTS.parent.glob("lab/tests/**/*.py")])
        for line, words in unlimited(file.read_text(encoding="utf-8"))
    ]
    advice = (
        f"use tests/kit/waiting.py, which says what was waited for, or '{EXCUSE}WHY IT ENDS':\n"
    )
    assert not found, advice + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "process.wait()",
        "thread.join()",
        "queue.get()",
        "future.result()",
        "process.communicate('x')",
        "subprocess.run(['x'], check=True)",
        "os.waitpid(pid, 0)",
        "os.read(0, 1)",
        "sock.recv(10)",
        "sock.accept()",
        "process.stdout.readline()",
        "for line in process.stdout: pass",
    ],
)
def test_a_wait_without_a_limit_is_seen(text: str) -> None:
    assert [line for line, _ in unlimited(text)] == [1]
    assert not list(unlimited(f"{EXCUSE}it is over\n{text}"))


def test_a_wait_with_a_limit_passes() -> None:
    words = (
        "p.wait(1); p.wait(timeout=1); t.join(timeout=1); ','.join(x); d.get('a'); "
        "subprocess.run([], timeout=1)"
    )
    assert not list(
        unlimited(words + "\nasync def f(): await event.wait()\nos.waitpid(pid, os.WNOHANG)")
    )


def sleeper() -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import time; print('began', flush=True); time.sleep(600)",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def sleeping_child() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


CASES: dict[str, Callable[[], object]] = {
    "not seen within 0.1 s: it comes": lambda: until(lambda: False, "it comes", 0.1),
    "did not end within 0.1 s, and was killed: the program": lambda: ended(
        sleeper(), "the program", 0.1
    ),
    "did not end within 0.2 s, and was killed: the child": lambda: child_ended(
        sleeping_child(), "the child", 0.2
    ),
    "has not ended within 0.1 s": lambda: joined(started(threading.Event()), "", 0.1),
    "not seen within 0.1 s: the event": lambda: happened(threading.Event(), "the event", 0.1),
    "nothing to read within 0.1 s: a word": lambda: read_some(os.pipe()[0], 1, "a word", 0.1),
    "did not end within 0.3 s, and was killed: it says": lambda: said(sleeper(), "it says", 0.3),
    "which was killed: its second line": lambda: reads(sleeper()),
    "did not end within 1 s; it wrote 'began": lambda: run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            "print('began', flush=True); import time; time.sleep(600)",
        ],
        1,
        stdout=subprocess.PIPE,
    ),
}


def reads(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    with limited(process, "its second line", 0.3):
        process.stdout.readlines()  # limit: the block's


def started(halt: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=halt.wait, args=(600,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("sentence", CASES)
def test_a_wait_in_vain_fails_with_the_sentence_that_was_waited_for(sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        CASES[sentence]()
    assert sentence in str(caught.value)
