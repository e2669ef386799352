"""Sources: where a node asks for a short text again and again, such as what it can give now.

A source is the path of a file, an http(s) URL, `cgroup`, or a function as `module:function`. A
thread of its own asks it, so that a source that hangs holds up nothing else.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ...errors import InvalidInput
from ...model.address import safe_url
from ...model.ids import shown
from ..duty import Duty
from .process_limits import limits_text

log = logging.getLogger("parsync.agent")

TextSource = Callable[[], str]
"""A function that returns the text of a source now. It raises any error."""

CGROUP: Final = "cgroup"
MAX_FAILURES: Final = 3
"""A source that fails so often in a row is reported."""
URL_TIMEOUT_S: Final = 0.8
"""Seconds for which a server may be silent."""
SILENT_S: Final = 5.0
"""A source that has not answered for so many seconds is reported, as one that fails."""
MAX_SOURCE_BYTES: Final = 64 * 2**10
"""Maximum number of bytes of a text."""
_FUNCTION_SOURCE: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def read_url(url: str, headers: dict[str, str] | None = None, method: str = "GET") -> str:
    """Return the text at an http(s) URL, asked without a proxy; raises OSError."""
    opener = build_opener(ProxyHandler({}))
    # `source_of` has checked the scheme
    request = Request(url, headers=headers or {}, method=method)  # noqa: S310
    until_s = time.monotonic() + SILENT_S
    raw = b""
    with opener.open(request, timeout=URL_TIMEOUT_S) as answer:
        # the time-out is that of each read: a server may send its text byte by byte
        while len(raw) <= MAX_SOURCE_BYTES and (piece := answer.read1(MAX_SOURCE_BYTES)):
            raw += piece
            if time.monotonic() > until_s:
                raise TimeoutError(f"the whole text has not come within {SILENT_S:g} s")
    return _decode(raw)


def read_file(path: Path) -> str:
    """Return the text of a file; raises OSError or ValueError."""
    with path.open("rb") as file:
        return _decode(file.read(MAX_SOURCE_BYTES + 1))


def source_of(flag: str, text: str, absent: bool = False) -> TextSource:
    """Return the source that a flag names; raises InvalidInput.

    flag: the flag or variable, for messages.
    absent: whether the file need not exist.
    """
    where = f"{flag} {shown(safe_url(text))} is not valid"
    if text == CGROUP:
        return limits_text
    if "://" in text:
        url = checked_url(flag, text)
        return lambda: read_url(url)
    if match := _FUNCTION_SOURCE.fullmatch(text):
        return _function_of(where, match[1], match[2])
    path = Path(text)
    if not text or "\0" in text or path.is_dir() or not (absent or path.exists()):
        raise InvalidInput(
            f"{where}: it must be the path of a file, http://HOST/PATH, {CGROUP} or module:function"
        )
    return lambda: read_file(path)


def checked_url(flag: str, text: str) -> str:
    """Return the address of a source; raises InvalidInput for any other text.

    flag: the flag or variable, for messages.
    """
    where = f"{flag} {shown(safe_url(text))} is not valid"
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_url = is_url and (parts.port is None or parts.port > 0) and text.isprintable()
    except ValueError:
        is_url = False
    if not is_url or " " in text:
        raise InvalidInput(f"{where}: the address must be http://HOST/PATH or https://HOST/PATH")
    if "@" in parts.netloc:
        raise InvalidInput(f"{where}: the address must have no user name and no password")
    return text


def _function_of(where: str, module_name: str, name: str) -> TextSource:
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"{where}: module {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInput(f"{where}: module {module_name} has no function {name}")

    def ask() -> str:
        text = function()
        if not isinstance(text, str):
            raise TypeError(f"it returned {shown(text)}, which is no text")
        return text

    return ask


def _decode(raw: bytes) -> str:
    if len(raw) > MAX_SOURCE_BYTES:
        raise ValueError(f"it has more than {MAX_SOURCE_BYTES:,} bytes")
    return raw.decode()


class SourceReader(Duty):
    """Asks a source at regular intervals, and hands on each text.

    name: the name of the thread.
    asked: set once the source was asked for the first time.
    take: takes a text; a ValueError says that the text cannot be read, and counts as a failure.
    wait: waits so many seconds, less if the node has stopped.
    is_over: whether the node has stopped.
    """

    def __init__(
        self,
        name: str,
        source: TextSource,
        interval_s: float,
        take: Callable[[str], object],
        wait: Callable[[float], object],
        is_over: Callable[[], bool],
    ) -> None:
        super().__init__(name)
        self._source = source
        self._interval_s = interval_s
        self._take = take
        self._wait = wait
        self._is_over = is_over
        self.asked = threading.Event()
        self._failures = 0
        self._why = ""
        self._asked_s = 0.0
        self._was_silent = False  # and the log has said so

    def watch(self) -> None:
        """Log that the source does not answer, once until it answers; another thread calls this."""
        if self._is_silent and not self._was_silent:
            self._was_silent = True
            log.warning(
                "%s: the source has not answered for %g s, and its last text stands",
                *(self.name, SILENT_S),
            )

    @property
    def _is_silent(self) -> bool:
        """True if the source has been asked, and has not answered for too long."""
        asked_s = self._asked_s
        return bool(asked_s) and time.monotonic() - asked_s > SILENT_S

    @property
    def flaw(self) -> str:
        """Why the source is of no use now: its last failures or its silence; '' if it is well."""
        if self._failures >= MAX_FAILURES:
            return self._why
        return f"it has not answered for {SILENT_S:g} s" if self._is_silent else ""

    def work(self) -> None:
        """Ask until the node stops."""
        while not self._is_over():
            self.ask()
            self._wait(self._interval_s)

    def ask(self) -> bool:
        """Ask once; return whether the source gave a text that can be read."""
        self._asked_s = time.monotonic()
        try:
            self._take(self._source())
        # a function may raise anything, also SystemExit, and must not end the thread
        except BaseException as error:
            self._fail(error)
            return False
        finally:
            self._asked_s = 0.0
            self.asked.set()
        if self._failures >= MAX_FAILURES or self._was_silent:
            log.info("%s: the source answers again", self.name)
        self._failures = 0
        self._was_silent = False
        return True

    def _fail(self, error: BaseException) -> None:
        """Note a failure; log the last of MAX_FAILURES in a row."""
        try:
            text = safe_url(" ".join(str(error).split()))[:200]
        except Exception:  # the error of a function may have no text
            text = ""
        self._why = f"{type(error).__name__}: {text}" if text else type(error).__name__
        self._failures += 1
        if self._failures == MAX_FAILURES:
            log.warning(
                "%s: the source has failed %d times in a row, and its last text stands: %s",
                *(self.name, MAX_FAILURES, self._why),
            )
