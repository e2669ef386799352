"""The pages for people: templates filled from the survey, and from Redis for tasks. They work without JavaScript."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
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
from ..store.tasks import ANY, list_tasks
from .api import TASK_STATES
from .asker import Asker
from .feed import EventFeed
from .health import checks_of
from .page_values import event_values, node_values, overview_values, scheduler_values, task_values
from .query import Query, asked
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
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
MOST_TASKS, MOST_PAGES = 100, 200


class Pages:
    """The pages of one cluster. operators: some people may do something, and the pages show what."""

    def __init__(
        self, surveyor: Surveyor, asker: Asker, feed: EventFeed, cluster: str, operators: bool = False
    ) -> None:
        self._surveyor, self._asker, self._feed, self._cluster = surveyor, asker, feed, cluster
        self._links = (*LINKS, ("/operator", "operator")) if operators else LINKS
        self._templates = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
        self._templates.globals["operators"] = operators

    def routes(self) -> list[Route]:
        """Return the routes."""
        answers = (self.overview, self.nodes, self.tasks, self.schedulers)
        found = [Route(path, answer) for (path, _), answer in zip(LINKS, answers, strict=True)]
        return [*found, *(Route(f"/static/{name}", _file(name)) for name in ("page.css", "page.js"))]

    def _show(self, latest: Latest, here: str, template: str, **values: Any) -> bytes:
        about = {"stale": latest.stale, "age_s": latest.age_s, "error": latest.error or "reading takes long"}
        title = dict(self._links)[here]
        page = self._templates.get_template(template)
        return page.render(cluster=self._cluster, links=self._links, here=here, title=title, **about, **values).encode()

    def page(self, here: str, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page for one reader."""
        return _page(self._show(self._surveyor.latest, here, template, **values), status)

    def _of_survey(
        self, request: Request, here: str, template: str, fill: Callable[[Survey | None], dict[str, Any]]
    ) -> Response:
        """Return a page that is rendered once for all who look at this survey."""
        latest = self._surveyor.latest
        key = f"{asked(request)} {latest.stale and int(latest.age_s or 0)}"
        if (body := latest.pages.get(key)) is None:
            body = self._show(latest, here, template, **fill(latest.survey))
            if len(latest.pages) < MOST_PAGES:
                latest.pages[key] = body
        return _page(body)

    async def overview(self, request: Request) -> Response:
        """Show whether tasks can be placed, the waiting tasks, and the last events."""
        Query(request)
        checks = checks_of(self._surveyor.latest)

        def fill(survey: Survey | None) -> dict[str, Any]:
            return {"checks": checks, **overview_values(survey), **event_values(self._feed.kept.events)}

        return self._of_survey(request, "/", "overview.html", fill)

    async def nodes(self, request: Request) -> Response:
        """Show nodes and their slots."""
        offset = Query(request, ("offset",)).offset()
        return self._of_survey(request, "/view/nodes", "nodes.html", lambda survey: node_values(survey, offset))

    async def schedulers(self, request: Request) -> Response:
        """Show schedulers, and the age of each one's copy of each partition."""
        Query(request)
        moments = self._surveyor.latest.counted.moments
        return self._of_survey(
            request, "/view/schedulers", "schedulers.html", lambda survey: scheduler_values(survey, moments)
        )

    async def tasks(self, request: Request) -> Response:
        """Show tasks in a state, or one task."""
        latest = self._surveyor.latest
        try:
            query = Query(request, ("state", "id"))
            state, id = query.one_of("state", TASK_STATES), query.text("id").strip()
            if id:
                encode_id(id)
                status, found = await self._asker.ask(("page", id), lambda client: _one(client, id))
                return _page(self._show(latest, "/view/tasks", "task.html", **task_values(status, found)))
            some = await self._asker.ask(("tasks page", state), lambda client: _some(client, state))
        except ParsyncError as error:
            wrong = isinstance(error, InvalidInput)
            return _page(self._show(latest, "/view/tasks", "problem.html", problem=str(error)), 400 if wrong else 503)
        rows = [(task, needs_shown(task.needs), show_time(task.times.get("submitted"))) for task in some]
        values = {"tasks": rows, "words": TASK_STATES, "state": state, "limit": MOST_TASKS}
        return _page(self._show(latest, "/view/tasks", "tasks.html", **values))


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return FileResponse(FOLDER / name, headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _page(body: bytes, status: int = 200) -> Response:
    return Response(body, status, HEADERS, media_type="text/html; charset=utf-8")


def _one(client: ParsyncClient, id: str) -> tuple[TaskStatus, Explanation]:
    return client.status(id), client.explain(id)


def _some(client: ParsyncClient, state: str) -> list[TaskStatus]:
    client.check()
    return client.with_reasons(list_tasks(client.store, parse_states(state) if state else ANY, MOST_TASKS))
