"""Sources of a node: files, URLs, control groups and functions; what is refused, what fails."""

import logging
import re
import sys
import time
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from parsync_redis import InvalidInput
from parsync_redis.worker.node import sources
from parsync_redis.worker.node.process_limits import limits_text
from parsync_redis.worker.node.sources import (
    MAX_FAILURES,
    MAX_SOURCE_BYTES,
    SILENT_S,
    SourceReader,
    read_url,
    source_of,
)
from tests.kit.waiting import joined
from tests.unit.test_process_limits import machine


class TextServer(ThreadingHTTPServer):
    """A server on loopback that answers with a text, a status, or not at all while it is held.

    gap_s: seconds between two bytes of the text; 0 to send it whole.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.text = "slots=6"
        self.gap_s = 0.0
        self.status = 200
        self.open = Event()
        self.open.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/capacity"


class Answer(BaseHTTPRequestHandler):
    server: TextServer

    def do_GET(self) -> None:
        self.server.open.wait(30)
        self.send_response(self.server.status)
        self.end_headers()
        pieces = self.server.text if self.server.gap_s else [self.server.text]
        with suppress(OSError):  # the reader has given up
            for piece in pieces:
                self.wfile.write(piece.encode())
                time.sleep(self.server.gap_s)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def text_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextServer]:
    monkeypatch.setattr(sources, "URL_TIMEOUT_S", 60.0)  # for a busy machine
    server = TextServer()
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.open.set()
    server.shutdown()
    joined(thread)
    server.server_close()


def reader(ask: object, texts: list[str] | None = None) -> SourceReader:
    """Return a reader that is asked by the test; `ask` is a source."""
    take = (texts if texts is not None else []).append
    return SourceReader("capacity of n1", ask, 1.0, take, lambda _: None, lambda: True)  # type: ignore[arg-type]


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "capacity"
    file.write_text("slots=6\n")
    ask = source_of("--parsync-capacity", str(file))
    assert ask() == "slots=6\n"
    file.write_text("slots=2")
    assert ask() == "slots=2"
    file.write_bytes(b"x" * (MAX_SOURCE_BYTES + 1))
    with pytest.raises(ValueError, match="more than"):
        ask()
    file.unlink()
    with pytest.raises(OSError, match="No such file"):
        ask()


def test_a_url_is_asked_without_a_proxy(
    text_server: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    ask = source_of("--parsync-capacity", text_server.url)
    assert ask() == "slots=6"
    text_server.status = 404
    with pytest.raises(OSError, match="404"):
        ask()


def test_a_server_that_is_silent_is_not_waited_for(
    text_server: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "URL_TIMEOUT_S", 0.1)
    text_server.open.clear()
    with pytest.raises(OSError, match="timed out"):
        read_url(text_server.url)


def test_a_server_that_sends_its_text_byte_by_byte_is_not_read_for_ever(
    text_server: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_server.text = "slots=6 " * 40
    text_server.gap_s = 0.01
    monkeypatch.setattr(sources, "SILENT_S", 0.05)
    with pytest.raises(OSError, match=r"the whole text has not come within 0\.05 s"):
        read_url(text_server.url)


def test_the_limits_of_control_groups_are_whole_cpus_and_bytes(tmp_path: Path) -> None:
    files = {"job/cpu.max": "150000 100000", "job/memory.max": "4294967296"}
    root = machine(tmp_path, "0::/job\n", files)
    assert limits_text(root) == "slots=1 mem=4294967296"
    (root / "sys/fs/cgroup/job/cpu.max").write_text("20000 100000")
    (root / "sys/fs/cgroup/job/memory.max").write_text("2097152")
    assert limits_text(root) == "slots=1 mem=2097152", "less than a CPU still runs a task"
    assert re.fullmatch(r"slots=\d+ mem=\d+", source_of("--parsync-capacity", "cgroup")())


def test_a_function_is_called_and_must_return_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site_capacity.py").write_text(
        "def text():\n    return 'slots=3'\ndef number():\n    return 3\nlimit = 4\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_of("--parsync-capacity", "site_capacity:text")() == "slots=3"
    with pytest.raises(TypeError, match="it returned 3, which is no text"):
        source_of("--parsync-capacity", "site_capacity:number")()
    for name, why in (
        ("site_capacity:limit", "module site_capacity has no function limit"),
        ("site_capacity:missing", "module site_capacity has no function missing"),
        ("no_such_site:text", "module no_such_site cannot be imported: ModuleNotFoundError"),
    ):
        with pytest.raises(InvalidInput, match=why):
            source_of("--parsync-capacity", name)
    sys.modules.pop("site_capacity")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/no/such/file",
        "/",
        "ftp://host/x",
        "http://",
        "http://host:port/",
        "http://a b/",
        "http://me:secret@host/x",
        "a\0",
    ],
)
def test_a_source_without_sense_is_refused_at_start(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^PARSYNC_NODE_CAPACITY .* is not valid: "):
        source_of("PARSYNC_NODE_CAPACITY", text)


def test_a_file_may_come_later_where_that_is_asked_for(tmp_path: Path) -> None:
    ask = source_of("--parsync-notice", str(tmp_path / "notice"), absent=True)
    with pytest.raises(FileNotFoundError):
        ask()


def test_no_password_of_an_address_is_shown() -> None:
    for url, why in (
        ("ftp://me:secret@host/x", "the address must be http://HOST/PATH or https://HOST/PATH"),
        ("http://me:secret@host/x", "the address must have no user name and no password"),
    ):
        with pytest.raises(InvalidInput, match=why) as refused:
            source_of("--parsync-capacity", url)
        assert "secret" not in str(refused.value)


def test_the_third_failure_in_a_row_is_logged_once_and_the_next_answer_ends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "parsync.agent")
    answers: list[str] = []
    texts: list[str] = []

    def ask() -> str:
        return answers.pop()

    source = reader(ask, texts)
    answers.append("slots=6")
    assert source.ask()
    assert not source.ask()
    assert not source.ask()
    assert (source.flaw, caplog.messages) == ("", [])
    assert not source.ask()
    assert not source.ask()
    assert source.flaw == "IndexError: pop from empty list"
    assert caplog.messages == [
        "capacity of n1: the source has failed 3 times in a row, and its last text stands: "
        "IndexError: pop from empty list"
    ]
    answers.append("slots=5")
    assert source.ask()
    assert source.flaw == ""
    assert texts == ["slots=6", "slots=5"]
    assert caplog.messages[1:] == ["capacity of n1: the source answers again"]


class Wordless(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "flaw"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (CancelledError(), "CancelledError"),
        (Wordless(), "Wordless"),
    ],
)
def test_any_error_of_a_function_is_a_failure_and_its_thread_goes_on(
    error: BaseException, flaw: str
) -> None:
    def ask() -> str:
        raise error

    source = reader(ask)
    for _ in range(MAX_FAILURES):
        assert not source.ask()
    assert source.flaw == flaw


def test_a_module_that_ends_the_program_is_refused_as_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site_script.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInput, match="site_script cannot be imported: SystemExit: 0"):
        source_of("--parsync-capacity", "site_script:text")


def test_a_source_that_is_silent_and_fails_each_time_is_logged_as_silent_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "parsync.agent")
    clock_s = [100.0]
    errors = [TimeoutError("no name server")] * 2

    def ask() -> str:
        clock_s[0] += SILENT_S + 1
        source.watch()
        if errors:
            raise errors.pop()
        return "slots=6"

    source = reader(ask)
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    silent = "capacity of n1: the source has not answered for 5 s, and its last text stands"
    for answers in (False, False, True):
        assert source.ask() is answers
        source.watch()
    assert caplog.messages == [silent, "capacity of n1: the source answers again"]
    assert source.ask()
    assert caplog.messages[2:3] == [silent], "it answered in between"


def test_a_source_that_hangs_has_a_flaw_meanwhile_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Event()
    answer = Event()

    def ask() -> str:
        asked.set()
        answer.wait(60)
        return "slots=6"

    source = reader(ask)
    thread = Thread(target=source.ask)
    thread.start()
    assert asked.wait(60)
    assert source.flaw == ""
    later_s = time.monotonic() + SILENT_S + 1
    source.watch()
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: later_s)
        assert source.flaw == "it has not answered for 5 s"
        source.watch()
        source.watch()
    assert caplog.messages == [
        "capacity of n1: the source has not answered for 5 s, and its last text stands"
    ]
    answer.set()
    joined(thread)
    assert source.flaw == ""
    source.watch()
    assert len(caplog.messages) == 1
