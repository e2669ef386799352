"""The JSON API, version 1: the lists of the command line with --json, in pages, and the demand for machines."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.requirements import parse_requirements
from ..cli.states import parse_states
from ..client import ParsyncClient
from ..model.devices import read_indexes
from ..model.explanation import Explanation, Outlook
from ..model.ids import encode_id, shown
from ..model.limits import MAX_SLOTS
from ..model.status import TaskStatus
from ..model.task import WAITING, TaskState
from ..model.views import measure_evenness
from ..store.tasks import ANY, list_tasks
from .asker import Asker
from .demand import Machine, measure_demand
from .health import freshness
from .metrics import STATES, state_of
from .query import PAGE, Query, asked
from .replies import encode, reply
from .survey import Survey
from .surveyor import Latest, Surveyor

ROOT: Final = "/api/v1"
MOST_PAGES: Final = 200
"""Pages of one survey that are kept."""

TASK_STATES: Final = (WAITING, *(state.value for state in TaskState if state is not TaskState.GONE))
DESCRIBED: Final = ("label", "resource", "taint", "device", "device_resource")


class Api:
    """Answers of a surveyor, and of Redis about single tasks."""

    def __init__(self, surveyor: Surveyor, asker: Asker) -> None:
        self._surveyor, self._asker = surveyor, asker

    def routes(self) -> list[Route]:
        """Return the routes."""
        paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/nodes": self.nodes,
            "/nodes/{name}": self.node,
            "/partitions": self.partitions,
            "/schedulers": self.schedulers,
            "/kinds": self.kinds,
            "/names": self.names,
            "/tasks": self.tasks,
            "/tasks/{id:path}": self.task,
            "/explain/{id:path}": self.explain,
            "/demand": self.demand,
        }
        return [Route(f"{ROOT}{path}", answer) for path, answer in paths.items()]

    # -- of the survey -----------------------------------------------------------------------------------------------

    async def nodes(self, request: Request) -> Response:
        """List nodes: ?state=up, draining, suspect, leaving or down."""
        query = Query(request, ("state", *PAGE))
        state = query.one_of("state", STATES)
        return self._page(request, query, lambda survey: [n for n in survey.nodes if state in ("", state_of(n))])

    async def node(self, request: Request) -> Response:
        """Show one node."""
        Query(request)
        name, latest = request.path_params["name"], self._surveyor.latest
        found = next((node for node in _survey(latest).nodes if node.name == name), None)
        if found is None:
            raise HTTPException(404, f"no node {shown(name)}")
        return _answer(latest, {"node": found})

    async def partitions(self, request: Request) -> Response:
        """List partitions, and how evenly nodes are dealt to them."""
        query, latest = Query(request, PAGE), self._surveyor.latest
        return self._page(
            request,
            query,
            lambda survey: survey.partitions,
            {"evenness": measure_evenness(_survey(latest).partitions)},
        )

    async def schedulers(self, request: Request) -> Response:
        """List schedulers."""
        return self._page(request, Query(request, PAGE), lambda survey: survey.schedulers)

    async def kinds(self, request: Request) -> Response:
        """List what waits, by kind, as `parsync demand` does: ?name=proj.*."""
        query = Query(request, ("name", *PAGE))
        name = query.pattern("name")
        return self._page(request, query, lambda survey: [k for k in survey.kinds if name.match(k.name)])

    async def names(self, request: Request) -> Response:
        """List the run times by name; they are at most 10 seconds older than the rest."""
        query = Query(request, ("name", *PAGE))
        name = query.pattern("name")
        return self._page(request, query, lambda survey: [n for n in survey.names if name.match(n.name)])

    async def demand(self, request: Request) -> Response:
        """Say how many slots and machines of a kind are wanted; an error if the survey is stale."""
        query, latest = (
            Query(request, ("slots", "name", "shared_devices"), ("require", *DESCRIBED)),
            self._surveyor.latest,
        )
        described = any(query.all(name) for name in DESCRIBED)
        machine = Machine.of(
            query.number("slots", int(described), int(described), MAX_SLOTS),
            query.pairs("resource"),
            query.pairs("label"),
            query.all("taint"),
            parse_requirements("require", query.all("require")),
            query.pattern("name"),
            read_indexes("device", query.all("device")) if query.all("device") else None,
            query.pairs("device_resource"),
            query.one_of("shared_devices", ("true",)) == "true",
        )
        survey = _survey(latest)
        if latest.stale:
            raise HTTPException(503, f"the survey is {latest.age_s:.0f} s old: {latest.error}")
        return self._kept(request, latest, lambda: measure_demand(survey, machine))

    def _page(
        self,
        request: Request,
        query: Query,
        find: Callable[[Survey], Sequence[Any]],
        more: dict[str, Any] | None = None,
    ) -> Response:
        """Reply with a page of a list of the survey. A rendered page is kept with the survey."""
        latest, limit, offset = self._surveyor.latest, query.limit(), query.offset()
        survey = _survey(latest)

        def page() -> dict[str, Any]:
            found = find(survey)
            items = found[offset : offset + limit]
            return {"total": len(found), "limit": limit, "offset": offset, **(more or {}), "items": items}

        return self._kept(request, latest, page)

    def _kept(self, request: Request, latest: Latest, make: Callable[[], dict[str, Any]]) -> Response:
        """Reply with what was made of this survey for the first who asked so."""
        key = asked(request)
        if (body := latest.pages.get(key)) is None:
            body = encode(make())
            if len(latest.pages) < MOST_PAGES:
                latest.pages[key] = body
        head = json.dumps({**freshness(latest), "now_ms": _survey(latest).now_ms}).encode()
        return reply(head[:-1] + b"," + body[1:])

    # -- of single tasks ---------------------------------------------------------------------------------------------

    async def tasks(self, request: Request) -> Response:
        """List tasks: first those that have not ended; ?state=waiting, placed, running, ..."""
        query = Query(request, ("state", "limit"))
        state, limit = query.one_of("state", TASK_STATES), query.limit()
        states = parse_states(state) if state else ANY

        def look(client: ParsyncClient) -> bytes:
            client.check()
            found = client.with_reasons(list_tasks(client.store, states, limit))
            return encode({"limit": limit, "items": found})

        return reply(await self._asker.ask(("tasks", state, limit), look))

    async def task(self, request: Request) -> Response:
        """Show one task: its place, its times, why it waits."""
        id = _id(request, "tasks")
        status: TaskStatus = await self._asker.ask(("task", id), lambda client: _status(client, id))
        return reply({"task": status}, 404 if status.state is TaskState.GONE else 200)

    async def explain(self, request: Request) -> Response:
        """Explain one task: the obstacles at each node, the tasks that hold its needs, when it may start."""
        id = _id(request, "explain")
        found: Explanation = await self._asker.ask(("explain", id), lambda client: client.explain(id))
        return reply({"explanation": found}, 404 if found.outlook is Outlook.GONE else 200)


def _status(client: ParsyncClient, id: str) -> TaskStatus:
    return client.with_reasons([client.status(id)])[0]


def id_in(request: Request, what: str) -> str:
    """Return the id in a path behind `what`, whole: a route's own value lacks a line break at the end."""
    return str(request.scope["path"]).removeprefix(f"{ROOT}/{what}/")


def _id(request: Request, what: str) -> str:
    """Return the id that a path names; raises InvalidInput."""
    Query(request)
    id = id_in(request, what)
    encode_id(id)
    return id


def _survey(latest: Latest) -> Survey:
    """Return the survey; an error if there is none yet."""
    if latest.survey is None:
        raise HTTPException(503, f"the cluster was not read yet: {latest.error}", {"Retry-After": "1"})
    return latest.survey


def _answer(latest: Latest, found: dict[str, Any]) -> Response:
    return reply({**freshness(latest), "now_ms": _survey(latest).now_ms, **found})
