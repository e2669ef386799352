"""The pages for people: templates filled from the survey, and from Redis for tasks.

They work without JavaScript.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..cli.common import show_time
from ..cli.states import parse_states
from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..model.explanation import Explanation
from ..model.human import needs_shown
from ..model.ids import encode_id
from ..model.status import TaskStatus
from ..store.reads.tasks import ANY, FoundTasks
from .api import TASK_STATE, TASK_STATES, find_some
from .asker import Asker
from .feed import KEEP_ALIVE_S, MOST_VIEWERS, EventFeed
from .health import checks_of
from .page_values import event_values, node_values, overview_values, scheduler_values, task_values
from .query import OFFSET, Param, Query, asked
from .shares import ADDRESS, Shares
from .stream import BEGIN, MEDIA_TYPE, Stream
from .survey import Survey
from .surveyor import Latest, Surveyor

FOLDER: Final = Path(__file__).parent / "pages"
LINKS: Final = (
    ("/", "overview"),
    ("/view/nodes", "nodes"),
    ("/view/tasks", "tasks"),
    ("/view/schedulers", "schedulers"),
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TASK_ID: Final = Param("id", "a81f", "Only this task.")
MOST_TASKS = 100
MOST_PAGES = 200
LOOK_S: Final = 2.0
"""If no survey comes, a page that is followed is made anew so often: it says how old it is."""

ALIVE: Final = b"event: alive\ndata:\n\n"

Answer = Callable[[Request], Awaitable[Response]]


class Pages:
    """The pages of one cluster.

    operators: some people may do something, and the pages show what.
    """

    def __init__(
        self,
        surveyor: Surveyor,
        asker: Asker,
        feed: EventFeed,
        cluster: str,
        operators: bool = False,
    ) -> None:
        self._surveyor = surveyor
        self._asker = asker
        self._feed = feed
        self._cluster = cluster
        self._shares = Shares(MOST_VIEWERS)
        self._messages = dict[str, bytes]()
        self._messages_of = (-1, 0.0)
        self._links = (*LINKS, ("/operator", "operator")) if operators else LINKS
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
        )
        self._templates.globals["operators"] = operators

    def routes(self) -> list[Route]:
        """Return the routes."""
        answers = (self.overview, self.nodes, self.tasks, self.schedulers)
        found = [
            Route(path, self._followed(answer))
            for (path, _), answer in zip(LINKS, answers, strict=True)
        ]
        return [
            *found,
            *(Route(f"/static/{name}", _file(name)) for name in ("page.css", "page.js")),
        ]

    def _show(self, latest: Latest, here: str, template: str, **values: Any) -> bytes:
        about = {
            "stale": latest.stale,
            "age_s": latest.age_s,
            "error": latest.error or "reading takes long",
        }
        title = dict(self._links)[here]
        page = self._templates.get_template(template)
        return page.render(
            cluster=self._cluster, links=self._links, here=here, title=title, **about, **values
        ).encode()

    def page(self, here: str, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page for one reader."""
        return _page(self._show(self._surveyor.latest, here, template, **values), status)

    def _of_survey(
        self,
        request: Request,
        here: str,
        template: str,
        fill: Callable[[Survey | None], dict[str, Any]],
    ) -> Response:
        """Return a page that is rendered once for all who look at this survey."""
        latest = self._surveyor.latest
        key = f"{asked(request)} {latest.stale and int(latest.age_s or 0)}"
        if (body := latest.pages.get(key)) is None:
            body = self._show(latest, here, template, **fill(latest.survey))
            if len(latest.pages) < MOST_PAGES:
                latest.pages[key] = body
        return _page(body)

    def _followed(self, answer: Answer) -> Answer:
        """Return what answers with a page, or with a stream of a page for whoever accepts that, as
        EventSource does.
        """

        @wraps(answer)
        async def found(request: Request) -> Response:
            page = await answer(request)
            wanted = request.method == "GET" and MEDIA_TYPE in request.headers.get("accept", "")
            if page.status_code != 200 or not wanted:
                return page
            owner = ADDRESS.get()
            if not self._shares.take(owner):
                raise HTTPException(
                    503, "too many viewers follow pages already", {"Retry-After": "10"}
                )
            return Stream(self._chunks(request, answer), lambda: self._shares.give_back(owner))

        return found

    async def _chunks(self, request: Request, answer: Answer) -> AsyncIterator[bytes]:
        """Give the page, and again whenever it has changed."""
        news = self._surveyor.news
        shown = b""
        said_s = time.monotonic()
        yield BEGIN
        while not news.over:
            number = news.number
            try:
                message = await self._message(request, answer, number)
            except HTTPException:  # too many questions: the browser comes again
                return
            if message != shown:
                shown = message
                said_s = time.monotonic()
                yield message
            elif time.monotonic() - said_s >= KEEP_ALIVE_S:
                said_s = time.monotonic()
                yield ALIVE
            await news.after(number, LOOK_S)

    async def _message(self, request: Request, answer: Answer, number: int) -> bytes:
        """Return the page as it is at a survey; it is made once for all who follow it."""
        now = (number, time.monotonic() // LOOK_S)
        if self._messages_of != now:
            self._messages = {}
            self._messages_of = now
        key = asked(request)
        if (message := self._messages.get(key)) is None:
            page = await answer(request)
            message = message_of(bytes(page.body))
            if self._messages_of == now:
                self._messages[key] = message
        return message

    async def overview(self, request: Request) -> Response:
        """Show whether tasks can be placed, the waiting tasks, and the last events."""
        Query(request)
        checks = checks_of(self._surveyor.latest)

        def fill(survey: Survey | None) -> dict[str, Any]:
            return {
                "checks": checks,
                **overview_values(survey),
                **event_values(self._feed.kept.events),
            }

        return self._of_survey(request, "/", "overview.html", fill)

    async def nodes(self, request: Request) -> Response:
        """Show nodes and their slots."""
        offset = Query(request, (OFFSET,)).offset()
        return self._of_survey(
            request, "/view/nodes", "nodes.html", lambda survey: node_values(survey, offset)
        )

    async def schedulers(self, request: Request) -> Response:
        """Show schedulers, and the age of each one's copy of each partition."""
        Query(request)
        moments = self._surveyor.latest.counted.moments
        return self._of_survey(
            request,
            "/view/schedulers",
            "schedulers.html",
            lambda survey: scheduler_values(survey, moments),
        )

    async def tasks(self, request: Request) -> Response:
        """Show tasks in a state, or one task."""
        latest = self._surveyor.latest
        try:
            query = Query(request, (TASK_STATE, TASK_ID))
            state = query.one_of(TASK_STATE)
            id = query.text("id").strip()
            if id:
                encode_id(id)
                status, found = await self._asker.ask(("page", id), lambda client: _one(client, id))
                return _page(
                    self._show(latest, "/view/tasks", "task.html", **task_values(status, found))
                )
            found_tasks = await self._asker.ask(
                ("tasks page", state), lambda client: _some(client, state)
            )
        except ParsyncError as error:
            wrong = isinstance(error, InvalidInput)
            return _page(
                self._show(latest, "/view/tasks", "problem.html", problem=str(error)),
                400 if wrong else 503,
            )
        rows = [
            (task, needs_shown(task.needs), show_time(task.times.get("submitted")))
            for task in found_tasks.tasks
        ]
        values = {
            "tasks": rows,
            "words": TASK_STATES,
            "state": state,
            "limit": MOST_TASKS,
            "part": found_tasks.part,
        }
        return _page(self._show(latest, "/view/tasks", "tasks.html", **values))


def message_of(page: bytes) -> bytes:
    """Return a page as a message of a stream, a line of it in each line."""
    return b"data: " + page.replace(b"\r", b"\n").replace(b"\n", b"\ndata: ") + b"\n\n"


def _file(name: str) -> Answer:
    async def answer(request: Request) -> Response:
        return FileResponse(FOLDER / name, headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _page(body: bytes, status: int = 200) -> Response:
    return Response(body, status, HEADERS, media_type="text/html; charset=utf-8")


def _one(client: ParsyncClient, id: str) -> tuple[TaskStatus, Explanation]:
    return client.status(id), client.explain(id)


def _some(client: ParsyncClient, state: str) -> FoundTasks:
    return find_some(client, parse_states(state) if state else ANY, MOST_TASKS)
