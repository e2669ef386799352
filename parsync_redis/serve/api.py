"""The JSON API, version 1: the lists of the command line with --json, in pages, and the demand for
machines.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..cli.requirements import parse_requirements
from ..cli.states import parse_states
from ..client import ParsyncClient
from ..model.devices import read_indexes
from ..model.explanation import Explanation, Outlook
from ..model.ids import encode_id, shown
from ..model.limits import MAX_SLOTS
from ..model.node import NodeState
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import measure_evenness
from ..store.reads.tasks import ANY, FoundTasks, list_some
from . import answers
from .asker import Asker
from .demand import Machine, measure_demand
from .health import freshness
from .operation import ROOT, Operation
from .query import LIMIT, OFFSET, Param, Query, asked
from .replies import encode, reply
from .survey import Survey
from .surveyor import Latest, Surveyor

MOST_PAGES: Final = 200
"""Pages of one survey that are kept."""

MOST_LOOKED_AT: Final = 5000
"""Tasks that are looked at for one list."""

TASK_STATES: Final = tuple(state.value for state in TaskState if state is not TaskState.GONE)
TASK_STATE: Final = Param("state", "waiting", "Only tasks in this state.", words=TASK_STATES)
NODE_STATE: Final = Param(
    "state", "up", "Only nodes in this state.", words=tuple(state.value for state in NodeState)
)
NAME: Final = Param("name", "proj.*", "Only tasks of such names: a pattern.")
PAGE: Final = (LIMIT, OFFSET)
SLOTS: Final = Param("slots", "4", "Slots of the machine.", least=0, most=MAX_SLOTS)
SHARED: Final = Param(
    "shared_devices", "true", "It lets tasks without a device use its slots.", words=("true",)
)
REQUIRE: Final = Param("require", "zone=a", "Only tasks that require at least this.", repeated=True)
DESCRIBED: Final = (
    Param("label", "zone=a", "A label of the machine.", repeated=True),
    Param("resource", "mem=64GiB", "A resource of the machine.", repeated=True),
    Param("taint", "spot", "A taint of the machine.", repeated=True),
    Param("device", "gpu=0-3", "Devices of the machine.", repeated=True),
    Param(
        "device_resource",
        "gpu.mem=24GiB",
        "An attribute of its devices; it needs `device`.",
        repeated=True,
    ),
)
MACHINE: Final = (SLOTS, NAME, SHARED, REQUIRE, *DESCRIBED)


class Api:
    """Answers of a surveyor, and of Redis about single tasks."""

    def __init__(self, surveyor: Surveyor, asker: Asker) -> None:
        self._surveyor = surveyor
        self._asker = asker

    def routes(self) -> list[Operation]:
        """Return the routes."""
        wrong = {400: answers.Error, 503: answers.Error}
        none = {**wrong, 404: answers.Error}
        return [
            Operation("/nodes", self.nodes, {200: answers.Nodes, **wrong}, (NODE_STATE, *PAGE)),
            Operation("/nodes/{name}", self.node, {200: answers.OneNode, **none}),
            Operation("/partitions", self.partitions, {200: answers.Partitions, **wrong}, PAGE),
            Operation("/schedulers", self.schedulers, {200: answers.Schedulers, **wrong}, PAGE),
            Operation("/kinds", self.kinds, {200: answers.Kinds, **wrong}, (NAME, *PAGE)),
            Operation("/names", self.names, {200: answers.Names, **wrong}, (NAME, *PAGE)),
            Operation("/tasks", self.tasks, {200: answers.TaskList, **wrong}, (TASK_STATE, LIMIT)),
            Operation(
                "/tasks/{id:path}", self.task, {200: answers.OneTask, **wrong, 404: answers.OneTask}
            ),
            Operation(
                "/explain/{id:path}",
                self.explain,
                {200: answers.OneExplanation, **wrong, 404: answers.OneExplanation},
            ),
            Operation("/demand", self.demand, {200: answers.Demand, **wrong}, MACHINE),
        ]

    # -- of the survey -----------------------------------------------------------------------------

    async def nodes(self, request: Request, query: Query) -> Response:
        """List nodes: ?state=up, draining, suspect, leaving or down."""
        state = query.one_of(NODE_STATE)
        return self._page(
            request, query, lambda survey: [n for n in survey.nodes if state in ("", n.state)]
        )

    async def node(self, request: Request, query: Query) -> Response:
        """Show one node."""
        name = request.path_params["name"]
        latest = self._surveyor.latest
        found = next((node for node in _survey(latest).nodes if node.name == name), None)
        if found is None:
            raise HTTPException(404, f"no node {shown(name)}")
        return _answer(latest, {"node": found})

    async def partitions(self, request: Request, query: Query) -> Response:
        """List partitions, and how evenly nodes are dealt to them."""
        latest = self._surveyor.latest
        return self._page(
            request,
            query,
            lambda survey: survey.partitions,
            {"evenness": measure_evenness(_survey(latest).partitions)},
        )

    async def schedulers(self, request: Request, query: Query) -> Response:
        """List schedulers."""
        return self._page(request, query, lambda survey: survey.schedulers)

    async def kinds(self, request: Request, query: Query) -> Response:
        """List what waits, by kind, as `parsync kinds` does: ?name=proj.*."""
        name = query.pattern("name")
        return self._page(
            request, query, lambda survey: [k for k in survey.kinds if name.match(k.name)]
        )

    async def names(self, request: Request, query: Query) -> Response:
        """List the run times by name; they are at most 10 seconds older than the rest."""
        name = query.pattern("name")
        return self._page(
            request, query, lambda survey: [n for n in survey.names if name.match(n.name)]
        )

    async def demand(self, request: Request, query: Query) -> Response:
        """Say how many slots and machines of a kind are wanted; an error if the survey is stale."""
        latest = self._surveyor.latest
        described = any(query.all(one.name) for one in DESCRIBED)
        machine = Machine.of(
            query.number(SLOTS, int(described), int(described)),
            query.pairs("resource"),
            query.pairs("label"),
            query.all("taint"),
            parse_requirements("require", query.all("require")),
            query.pattern("name"),
            read_indexes("device", query.all("device")) if query.all("device") else None,
            query.pairs("device_resource"),
            query.one_of(SHARED) == "true",
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
        latest = self._surveyor.latest
        limit = query.limit()
        offset = query.offset()
        survey = _survey(latest)

        def page() -> dict[str, Any]:
            found = find(survey)
            items = found[offset : offset + limit]
            return {
                "total": len(found),
                "limit": limit,
                "offset": offset,
                **(more or {}),
                "items": items,
            }

        return self._kept(request, latest, page)

    def _kept(
        self, request: Request, latest: Latest, make: Callable[[], dict[str, Any]]
    ) -> Response:
        """Reply with what was made of this survey for the first who asked so."""
        key = asked(request)
        if (body := latest.pages.get(key)) is None:
            body = encode(make())
            if len(latest.pages) < MOST_PAGES:
                latest.pages[key] = body
        head = json.dumps({**freshness(latest), "now_ms": _survey(latest).now_ms}).encode()
        return reply(head[:-1] + b"," + body[1:])

    # -- of single tasks ---------------------------------------------------------------------------

    async def tasks(self, request: Request, query: Query) -> Response:
        """List tasks: first those that have not ended; ?state=waiting, placed, running, ..."""
        state = query.one_of(TASK_STATE)
        limit = query.limit()
        states = parse_states(state) if state else ANY

        def look(client: ParsyncClient) -> bytes:
            listed = find_some(client, states, limit)
            return encode({"limit": limit, "part": listed.part, "items": listed.tasks})

        return reply(await self._asker.ask(("tasks", state, limit), look))

    async def task(self, request: Request, query: Query) -> Response:
        """Show one task: its place, its times, why it waits."""
        id = _id(request, "tasks")
        status: TaskStatus = await self._asker.ask(("task", id), lambda client: _status(client, id))
        return reply({"task": status}, 404 if status.state is TaskState.GONE else 200)

    async def explain(self, request: Request, query: Query) -> Response:
        """Explain one task: the obstacles at each node, the tasks that hold its needs, when it may
        start.
        """
        id = _id(request, "explain")
        found: Explanation = await self._asker.ask(
            ("explain", id), lambda client: client.explain(id)
        )
        return reply({"explanation": found}, 404 if found.outlook is Outlook.GONE else 200)


def find_some(client: ParsyncClient, states: Collection[TaskState], limit: int) -> FoundTasks:
    """Return tasks in some states, with reasons. It looks at MOST_LOOKED_AT tasks at most."""
    client.check()
    listed = list_some(client.store, states, limit, MOST_LOOKED_AT)
    return replace(listed, tasks=client.with_reasons(listed.tasks))


def _status(client: ParsyncClient, id: str) -> TaskStatus:
    return client.with_reasons([client.status(id)])[0]


def id_in(request: Request, what: str) -> str:
    """Return the id in a path behind `what`, whole: a route's own value lacks a line break at the
    end.
    """
    return str(request.scope["path"]).removeprefix(f"{ROOT}/{what}/")


def _id(request: Request, what: str) -> str:
    """Return the id that a path names; raises InvalidInput."""
    id = id_in(request, what)
    encode_id(id)
    return id


def _survey(latest: Latest) -> Survey:
    """Return the survey; an error if there is none yet."""
    if latest.survey is None:
        raise HTTPException(
            503, f"the cluster was not read yet: {latest.error}", {"Retry-After": "1"}
        )
    return latest.survey


def _answer(latest: Latest, found: dict[str, Any]) -> Response:
    return reply({**freshness(latest), "now_ms": _survey(latest).now_ms, **found})
