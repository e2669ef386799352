"""The pages for people: templates filled from the survey, and from Redis for tasks.

The pages work without JavaScript.
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
from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..model.explanation import Explanation
from ..model.human import needs_shown
from ..model.ids import encode_id
from ..model.status import TaskStatus
from .api import (
    TASK_STATE_PARAM,
    TASK_STATES,
    TENANT_PARAM,
    UNDER_PARAM,
    list_tasks,
    task_query,
)
from .asker import Asker
from .feed import KEEP_ALIVE_S, MOST_VIEWERS, EventFeed
from .health import checks_of
from .page_values import (
    event_values,
    node_values,
    overview_values,
    scheduler_values,
    task_values,
    tenant_values,
)
from .query import OFFSET, Param, Query, path_and_query
from .replies import BEGIN, MEDIA_TYPE, Stream
from .shares import OWNER, Shares
from .survey import Survey
from .surveyor import MOST_RENDERED_PAGES, LatestSurvey, Surveyor

FOLDER: Final = Path(__file__).parent / "pages"
LINKS: Final = (
    ("/", "overview"),
    ("/view/nodes", "nodes"),
    ("/view/tasks", "tasks"),
    ("/view/schedulers", "schedulers"),
    ("/view/tenants", "tenants"),
)
PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TASK_ID_PARAM: Final = Param("id", "a81f", "Only this task.")
MOST_TASKS = 100

REFRESH_S: Final = 2.0
"""Seconds without a survey after which a followed page is made again, to show its age."""

ALIVE: Final = b"event: alive\ndata:\n\n"

Endpoint = Callable[[Request], Awaitable[Response]]


class Pages:
    """The pages of one cluster.

    operators: whether there are operators; the pages then link to their actions.
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
        answers = (self.overview, self.nodes, self.tasks, self.schedulers, self.tenants)
        routes = [
            Route(path, self._followed(answer))
            for (path, _), answer in zip(LINKS, answers, strict=True)
        ]
        return [
            *routes,
            *(Route(f"/static/{name}", _file(name)) for name in ("page.css", "page.js")),
        ]

    def _show(self, latest: LatestSurvey, path: str, template: str, **values: Any) -> bytes:
        about = {
            "stale": latest.stale,
            "age_s": latest.age_s,
            "error": latest.error or "reading takes long",
        }
        title = dict(self._links)[path]
        page = self._templates.get_template(template)
        return page.render(
            cluster=self._cluster, links=self._links, path=path, title=title, **about, **values
        ).encode()

    def page(self, path: str, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page that is rendered for one reader."""
        return _page(self._show(self._surveyor.latest, path, template, **values), status)

    def _of_survey(
        self,
        request: Request,
        path: str,
        template: str,
        fill: Callable[[Survey | None], dict[str, Any]],
    ) -> Response:
        """Return a page that is rendered once for all readers of this survey."""
        latest = self._surveyor.latest
        key = f"{path_and_query(request)} {latest.stale and int(latest.age_s or 0)}"
        if (body := latest.pages.get(key)) is None:
            body = self._show(latest, path, template, **fill(latest.survey))
            if len(latest.pages) < MOST_RENDERED_PAGES:
                latest.pages[key] = body
        return _page(body)

    def _followed(self, answer: Endpoint) -> Endpoint:
        """Return an endpoint that answers with a page, or with a stream of the page.

        A request gets the stream if it accepts event streams, as EventSource does.
        """

        @wraps(answer)
        async def page_or_stream(request: Request) -> Response:
            page = await answer(request)
            wants_stream = request.method == "GET" and MEDIA_TYPE in request.headers.get(
                "accept", ""
            )
            if page.status_code != 200 or not wants_stream:
                return page
            owner = OWNER.get()
            if not self._shares.take(owner):
                raise HTTPException(
                    503, "too many viewers follow pages already", {"Retry-After": "10"}
                )
            return Stream(self._chunks(request, answer), lambda: self._shares.give_back(owner))

        return page_or_stream

    async def _chunks(self, request: Request, answer: Endpoint) -> AsyncIterator[bytes]:
        """Yield the page, and yield it again whenever it has changed."""
        announcer = self._surveyor.announcer
        sent = b""
        sent_s = time.monotonic()
        yield BEGIN
        while not announcer.over:
            number = announcer.number
            try:
                message = await self._message(request, answer, number)
            except HTTPException:  # too many questions: the browser connects again
                return
            if message != sent:
                sent = message
                sent_s = time.monotonic()
                yield message
            elif time.monotonic() - sent_s >= KEEP_ALIVE_S:
                sent_s = time.monotonic()
                yield ALIVE
            await announcer.after(number, REFRESH_S)

    async def _message(self, request: Request, answer: Endpoint, number: int) -> bytes:
        """Return the page at a survey, as a message of a stream.

        The page is made once for all who follow it.
        """
        now = (number, time.monotonic() // REFRESH_S)
        if self._messages_of != now:
            self._messages = {}
            self._messages_of = now
        key = path_and_query(request)
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
                **event_values(self._feed.recent.events),
            }

        return self._of_survey(request, "/", "overview.html", fill)

    async def nodes(self, request: Request) -> Response:
        """Show nodes and their slots."""
        offset = Query(request, (OFFSET,)).offset()
        return self._of_survey(
            request, "/view/nodes", "nodes.html", lambda survey: node_values(survey, offset)
        )

    async def schedulers(self, request: Request) -> Response:
        """Show schedulers, and the age of each scheduler's copy of each partition."""
        Query(request)
        moments = self._surveyor.latest.counted.moments
        return self._of_survey(
            request,
            "/view/schedulers",
            "schedulers.html",
            lambda survey: scheduler_values(survey, moments),
        )

    async def tenants(self, request: Request) -> Response:
        """Show tenants and limits: what is held, and what waits."""
        Query(request)
        return self._of_survey(request, "/view/tenants", "tenants.html", tenant_values)

    async def tasks(self, request: Request) -> Response:
        """Show tasks in a state, or one task."""
        latest = self._surveyor.latest
        try:
            params = (TASK_STATE_PARAM, TASK_ID_PARAM, TENANT_PARAM, UNDER_PARAM)
            query = Query(request, params)
            criteria = task_query(query, MOST_TASKS)
            id = query.text("id").strip()
            if id:
                encode_id(id)
                status, explanation = await self._asker.ask(
                    ("page", id), lambda client: _read_task(client, id)
                )
                return _page(
                    self._show(
                        latest, "/view/tasks", "task.html", **task_values(status, explanation)
                    )
                )
            found_tasks = await self._asker.ask(
                ("tasks page", criteria), lambda client: list_tasks(client, criteria)
            )
        except ParsyncError as error:
            status_code = 400 if isinstance(error, InvalidInput) else 503
            return _page(
                self._show(latest, "/view/tasks", "problem.html", problem=str(error)),
                status_code,
            )
        rows = [
            (task, needs_shown(task.needs), show_time(task.times.get("submitted")))
            for task in found_tasks.tasks
        ]
        values = {
            "tasks": rows,
            "words": TASK_STATES,
            "state": query.text(TASK_STATE_PARAM.name),
            "tenant": criteria.tenant,
            "under": criteria.under,
            "limit": MOST_TASKS,
            "part": found_tasks.part,
        }
        return _page(self._show(latest, "/view/tasks", "tasks.html", **values))


def message_of(page: bytes) -> bytes:
    """Return a page as a message of a stream, each line with the field name `data`."""
    return b"data: " + page.replace(b"\r", b"\n").replace(b"\n", b"\ndata: ") + b"\n\n"


def _file(name: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        return FileResponse(FOLDER / name, headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _page(body: bytes, status: int = 200) -> Response:
    return Response(body, status, PAGE_HEADERS, media_type="text/html; charset=utf-8")


def _read_task(client: ParsyncClient, id: str) -> tuple[TaskStatus, Explanation]:
    return client.status(id), client.explain(id)
