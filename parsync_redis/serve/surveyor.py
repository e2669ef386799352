"""The thread that reads a survey twice a second. All viewers get the newest survey.

The streams of pages wait for the announcement of a new survey.
"""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from redis.exceptions import RedisError

from ..client import ParsyncClient
from ..errors import ParsyncError
from ..store.reads.views import ViewReader
from .counting import SurveyCounter, SurveyCounts
from .survey import Survey, read_survey

log = logging.getLogger("parsync.serve")

SURVEY_EVERY_S: Final = 0.5
SURVEYS_PER_RUN_TIMES: Final = 20
"""Number of surveys of which one reads the run times: up to 10,000 lines that change slowly."""

SURVEYS_PER_OLDEST: Final = 2
"""Number of surveys of which one reads the oldest tasks, with some hundred requests."""

STALE_S: Final = 5.0
"""Seconds after which a survey is stale."""

FAILURE_WARNING_EVERY_S: Final = 10.0
"""Least seconds between two warnings of the log while a service cannot do its work."""

MOST_RENDERED_PAGES: Final = 200
"""Maximum number of rendered pages and answers that are kept with a survey."""


class SurveyAnnouncer:
    """Announces new surveys.

    number: how many surveys were announced. over: whether the process stops. Any thread may call
    `tell`; only the event loop may call the other methods.
    """

    def __init__(self) -> None:
        self.number = 0
        self.over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coming = asyncio.Event()

    def tell(self) -> None:
        """Announce a new survey."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop is closed: the process stops
                loop.call_soon_threadsafe(self._ring)

    def end(self) -> None:
        """Let all streams end, because the process stops."""
        self.over = True
        self._ring()

    def _ring(self) -> None:
        self.number += 1
        current = self._coming
        self._coming = asyncio.Event()
        current.set()

    async def after(self, number: int, most_s: float) -> None:
        """Wait for a survey after the survey `number`, for at most `most_s` seconds."""
        self._loop = asyncio.get_running_loop()
        if self.number == number:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._coming.wait()


@dataclass(frozen=True, slots=True)
class LatestSurvey:
    """The newest survey, and how it was read.

    survey: None before the first.
    read_s: when its reading began, monotonic.
    took_s: how long the reading took.
    error: why the last reading failed; '' if it did not.
    errors: the number of failed readings.
    counted: the counts since this service began.
    pages: request -> the page or answer that was rendered of this survey.
    """

    survey: Survey | None = None
    read_s: float = 0.0
    took_s: float = 0.0
    error: str = "nothing was read yet"
    errors: int = 0
    counted: SurveyCounts = field(default_factory=SurveyCounts)
    pages: dict[str, bytes] = field(default_factory=dict)

    @property
    def age_s(self) -> float | None:
        """Return the age of the survey in seconds; None if there is none."""
        return None if self.survey is None else time.monotonic() - self.read_s

    @property
    def stale(self) -> bool:
        """Return whether there is no recent survey."""
        return self.age_s is None or self.age_s > STALE_S


class Surveyor(threading.Thread):
    """Reads surveys until stopped. Survives outages.

    latest: replaced whole, so any thread may read it.
    announcer: announces each new survey.
    """

    def __init__(self, client: ParsyncClient) -> None:
        super().__init__(name="surveyor", daemon=True)
        self._client = client
        self._counting = SurveyCounter()
        self._reader = ViewReader()
        self._turns = 0
        self._warned_s = float("-inf")
        self._stop_asked = threading.Event()
        self.latest = LatestSurvey()
        self.announcer = SurveyAnnouncer()

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        if self.ident is not None:
            self.join(timeout=10)

    def run(self) -> None:
        """Read surveys, two a second; the readings take at most half of the time."""
        while not self._stop_asked.is_set():
            began_s = time.monotonic()
            self.look()
            took_s = time.monotonic() - began_s
            self._stop_asked.wait(max(SURVEY_EVERY_S - took_s, took_s))

    def look(self) -> None:
        """Read a survey. After a failure the last survey stays, and becomes older."""
        began_s = time.monotonic()
        try:
            survey = self._client.requests.do(self._read)
        except (ParsyncError, RedisError, OSError) as error:
            self._fail(str(error) or type(error).__name__)
        # the viewers see any error, and the next reading may succeed
        except Exception as error:
            log.exception("reading the cluster: unexpected")
            self._fail(f"unexpected: {type(error).__name__}")
        else:
            if self.latest.error and self.latest.errors:
                log.info("the cluster is read again")
            took_s = time.monotonic() - began_s
            counted = self._counting.add(survey, began_s)
            self.latest = LatestSurvey(survey, began_s, took_s, "", self.latest.errors, counted)
        self.announcer.tell()

    def _read(self) -> Survey:
        before = self.latest.survey
        turn = self._turns
        times_of = before if turn % SURVEYS_PER_RUN_TIMES else None
        oldest_of = before if turn % SURVEYS_PER_OLDEST else None
        idle_before = before.idle_since_ms if before else {}
        survey = read_survey(self._client.store, self._reader, times_of, oldest_of, idle_before)
        self._turns += 1
        return survey

    def _fail(self, error: str) -> None:
        before = self.latest
        self.latest = LatestSurvey(
            before.survey, before.read_s, before.took_s, error, before.errors + 1, before.counted
        )
        if time.monotonic() - self._warned_s >= FAILURE_WARNING_EVERY_S:
            self._warned_s = time.monotonic()
            log.warning("the cluster cannot be read: %s", error)
