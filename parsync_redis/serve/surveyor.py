"""The thread that reads a survey twice a second. All viewers get the newest one."""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from redis.exceptions import RedisError

from ..client import ParsyncClient
from ..errors import ParsyncError
from ..store.reads.cached_views import ViewReader
from .counting import Counted, Counting
from .news import News
from .survey import Survey, read_survey

log = logging.getLogger("parsync.serve")

EVERY_S: Final = 0.5
NAMES_EVERY: Final = 20
"""Run times change slowly, and there may be ten thousand of them: they are read every so many
times.
"""

OLDEST_EVERY: Final = 2
"""The oldest tasks take some hundred requests: they are looked for every so many times."""

STALE_S: Final = 5.0
"""A survey that is older is stale."""

SAY_S: Final = 10.0
"""While reading fails, the log says so once in this time."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest survey, None before the first, and when its reading began (monotonic seconds).

    took_s: how long that took. error: why the last reading failed, '' if it did not. counted: since
    this service began. pages: those rendered of this survey, for the next viewer.
    """

    survey: Survey | None = None
    read_s: float = 0.0
    took_s: float = 0.0
    error: str = "nothing was read yet"
    errors: int = 0
    counted: Counted = field(default_factory=Counted)
    pages: dict[str, bytes] = field(default_factory=dict)

    @property
    def age_s(self) -> float | None:
        """Return the age of the survey; None if there is none."""
        return None if self.survey is None else time.monotonic() - self.read_s

    @property
    def stale(self) -> bool:
        """Return True if there is no survey that is recent."""
        return self.age_s is None or self.age_s > STALE_S


class Surveyor(threading.Thread):
    """Reads until stopped; it survives outages.

    latest: replaced whole, so that any thread may read it. news: tells of each new one.
    """

    def __init__(self, client: ParsyncClient) -> None:
        super().__init__(name="surveyor", daemon=True)
        self._client = client
        self._counting = Counting()
        self._reader = ViewReader()
        self._turns = 0
        self._said_s = float("-inf")
        self._stop_asked = threading.Event()
        self.latest = Latest()
        self.news = News()

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        if self.ident is not None:
            self.join(timeout=10)

    def run(self) -> None:
        """Read twice a second, and never for more than half of the time."""
        while not self._stop_asked.is_set():
            began_s = time.monotonic()
            self.look()
            took_s = time.monotonic() - began_s
            self._stop_asked.wait(max(EVERY_S - took_s, took_s))

    def look(self) -> None:
        """Read once. If that fails, the survey before stays, and gets older."""
        began_s = time.monotonic()
        try:
            survey = self._client.requests.do(self._read)
        except (ParsyncError, RedisError, OSError) as error:
            self._fail(str(error) or type(error).__name__)
        # whatever it is, the viewers are told, and the next reading may succeed
        except Exception as error:
            log.exception("reading the cluster: unexpected")
            self._fail(f"unexpected: {type(error).__name__}")
        else:
            if self.latest.error and self.latest.errors:
                log.info("the cluster is read again")
            took_s = time.monotonic() - began_s
            counted = self._counting.add(survey, began_s)
            self.latest = Latest(survey, began_s, took_s, "", self.latest.errors, counted)
        self.news.tell()

    def _read(self) -> Survey:
        before = self.latest.survey
        turn = self._turns
        times_of = before if turn % NAMES_EVERY else None
        oldest_of = before if turn % OLDEST_EVERY else None
        found = read_survey(self._client.store, self._reader, times_of, oldest_of)
        self._turns += 1
        return found

    def _fail(self, error: str) -> None:
        before = self.latest
        self.latest = Latest(
            before.survey, before.read_s, before.took_s, error, before.errors + 1, before.counted
        )
        if time.monotonic() - self._said_s >= SAY_S:
            self._said_s = time.monotonic()
            log.warning("the cluster cannot be read: %s", error)
