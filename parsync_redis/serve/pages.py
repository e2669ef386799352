"""The pages for people: templates filled from the survey, and from Redis for tasks. They work without JavaScript."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..cli.common import show_time, words
from ..cli.tasks import parse_states
from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..model.explanation import Explanation
from ..model.ids import encode_id
from ..model.status import TaskStatus
from ..model.views import VIEW_AGES, NodeView
from ..placement.reasons import reason_class
from ..store.members import SchedulerView
from ..store.tasks import ANY, list_tasks
from .api import TASK_STATES
from .asker import Asker
from .health import checks_of
from .metrics import state_of
from .query import Query
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
MOST_KINDS, MOST_NODES, MOST_TASKS, MOST_BOXES, MOST_PAGES = 100, 100, 100, 64, 200
SHADES_MS: Final = (250, 1000, 3000, 10_000)
"""Ages at which the freshness map gets darker."""


class Pages:
    """The pages of one cluster."""

    def __init__(self, surveyor: Surveyor, asker: Asker, cluster: str) -> None:
        self._surveyor, self._asker, self._cluster = surveyor, asker, cluster
        self._templates = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)

    def routes(self) -> list[Route]:
        """Return the routes."""
        answers = (self.overview, self.nodes, self.tasks, self.schedulers)
        found = [Route(path, answer) for (path, _), answer in zip(LINKS, answers, strict=True)]
        return [*found, Route("/static/page.css", self._static), Route("/static/page.js", self._static)]

    async def _static(self, request: Request) -> Response:
        return FileResponse(FOLDER / request.url.path.rpartition("/")[2], headers={"X-Content-Type-Options": "nosniff"})

    def _show(self, latest: Latest, here: str, template: str, **values: Any) -> bytes:
        about = {"stale": latest.stale, "age_s": latest.age_s, "error": latest.error or "reading takes long"}
        title = dict(LINKS)[here]
        page = self._templates.get_template(template)
        return page.render(cluster=self._cluster, links=LINKS, here=here, title=title, **about, **values).encode()

    def _of_survey(self, request: Request, template: str, values: dict[str, Any]) -> Response:
        """Return a page that is rendered once for all who look at this survey."""
        latest = self._surveyor.latest
        key = f"{request.url.path}?{request.url.query} {latest.stale and int(latest.age_s or 0)}"
        if (body := latest.pages.get(key)) is None:
            body = self._show(latest, request.url.path, template, **values)
            if len(latest.pages) < MOST_PAGES:
                latest.pages[key] = body
        return _page(body)

    async def overview(self, request: Request) -> Response:
        """Show whether tasks can be placed, and what waits."""
        Query(request)
        latest = self._surveyor.latest
        survey = latest.survey
        if survey is None:
            return _page(self._show(latest, "/", "base.html"), 503)
        reasons = Counter[str]()
        for kind in survey.kinds:
            reasons[reason_class(kind.why)] += kind.waiting
        waiting = reasons.total()
        present = [node for node in survey.nodes if node.state != "down"]
        since_ms = min(survey.oldest_ms.values(), default=survey.now_ms)
        values = {
            "checks": checks_of(latest),
            "waiting": waiting,
            "oldest": age_text((survey.now_ms - since_ms) / 1000),
            "counts": survey.counts,
            "held": sum(node.held for node in present),
            "slots": sum(node.slots for node in present),
            "reasons": [(name, count, 100 * count // waiting) for name, count in reasons.most_common()],
            "kinds": survey.kinds[:MOST_KINDS],
            "more": max(0, len(survey.kinds) - MOST_KINDS),
        }
        return self._of_survey(request, "overview.html", values)

    async def nodes(self, request: Request) -> Response:
        """Show nodes and their slots."""
        offset, latest = Query(request, ("offset",)).offset(), self._surveyor.latest
        every = latest.survey.nodes if latest.survey else ()
        some = [
            (n, state_of(n), boxes_of(n), _left(n), words(n.labels, ":")) for n in every[offset : offset + MOST_NODES]
        ]
        states = Counter(map(state_of, every)).most_common()
        values = {"total": len(every), "states": states, "nodes": some, "offset": offset, "limit": MOST_NODES}
        return self._of_survey(request, "nodes.html", values)

    async def schedulers(self, request: Request) -> Response:
        """Show schedulers, and the age of each one's copy of each partition."""
        Query(request)
        found = self._surveyor.latest.survey.schedulers if self._surveyor.latest.survey else ()
        ages = [(one.name, ages_of(one)) for one in found if one.alive]
        partitions = range(max((len(some) for _, some in ages), default=0))
        values = {"schedulers": found, "freshness": ages, "partitions": partitions}
        return self._of_survey(request, "schedulers.html", values)

    async def tasks(self, request: Request) -> Response:
        """Show tasks in a state, or one task."""
        query = Query(request, ("state", "id"))
        latest, state, id = self._surveyor.latest, query.one_of("state", TASK_STATES), query.text("id").strip()
        try:
            if id:
                encode_id(id)
                status, found = await self._asker.ask(("page", id), lambda client: _one(client, id))
                return _page(self._show(latest, "/view/tasks", "task.html", **task_values(status, found)))
            some = await self._asker.ask(("tasks page", state), lambda client: _some(client, state))
        except ParsyncError as error:
            wrong = isinstance(error, InvalidInput)
            return _page(self._show(latest, "/view/tasks", "problem.html", problem=str(error)), 400 if wrong else 503)
        rows = [(task, show_time(task.times.get("submitted"))) for task in some]
        values = {"tasks": rows, "words": TASK_STATES, "state": state, "limit": MOST_TASKS}
        return _page(self._show(latest, "/view/tasks", "tasks.html", **values))


def _page(body: bytes, status: int = 200) -> Response:
    return Response(body, status, HEADERS, media_type="text/html; charset=utf-8")


def _one(client: ParsyncClient, id: str) -> tuple[TaskStatus, Explanation]:
    return client.status(id), client.explain(id)


def _some(client: ParsyncClient, state: str) -> list[TaskStatus]:
    client.check()
    return client.with_reasons(list_tasks(client.store, parse_states(state) if state else ANY, MOST_TASKS))


def _left(node: NodeView) -> str:
    return " ".join(f"{name}={node.left.get(name, 0)}/{amount}" for name, amount in node.resources.items())


def boxes_of(node: NodeView) -> list[str]:
    """Return a word for each slot: held, free or closed. Which is which does not matter; of many, none is shown."""
    if node.slots > MOST_BOXES:
        return []
    closed = max(0, node.slots - node.held - node.free)
    return ["held"] * min(node.held, node.slots) + ["free"] * node.free + ["closed"] * closed


def ages_of(scheduler: SchedulerView) -> Sequence[tuple[str, int]]:
    """Return the age of each partition copy as the scheduler reports it, and how dark it is shown."""
    ages = [age for age in scheduler.stats.get(VIEW_AGES, "").split() if age.isdecimal() and len(age) < 12]
    return [(age, sum(int(age) >= least for least in SHADES_MS)) for age in ages]


def age_text(seconds: float) -> str:
    """Return a duration for people: '3 s', '2 min', '5.1 h'."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def task_values(task: TaskStatus, found: Explanation) -> dict[str, Any]:
    """Return what the page of a task shows."""
    times, now_ms = task.times, found.now_ms or None
    steps = [
        ("waited", times.get("ready"), times.get("placed")),
        ("starting", times.get("placed"), times.get("started")),
        ("ran", times.get("started"), times.get("finished")),
    ]
    spans = [(name, start, end or now_ms) for name, start, end in steps if start]
    sizes = [(name, max(0, end - start)) for name, start, end in spans if start and end]
    total, at, parts = sum(size for _, size in sizes) or 1, 0.0, []
    for name, size in sizes:
        parts.append((name, round(at, 2), round(100 * size / total, 2), age_text(size / 1000)))
        at += 100 * size / total
    facts = [(name, show_time(at_ms)) for name, at_ms in times.items() if at_ms]
    facts += [("needs", task.needs), ("place", task.node or "-"), ("attempt", str(task.attempt))]
    if found.ahead:
        facts.append(("waiting tasks before it", f"{found.ahead:,}"))
    classes = [
        (len(some.nodes), ", ".join(some.nodes[:5]), "; ".join(one.why for one in some.obstacles) or "has room")
        for some in found.classes
    ]
    return {
        "task": task,
        "why": found.why or task.why,
        "parts": parts,
        "facts": facts,
        "classes": classes,
        "holders": found.holders[:20],
        "remedies": found.remedies,
    }
