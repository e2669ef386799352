"""The JSON API, version 1.

The API serves the lists that the command line prints with --json, in pages, and the demand for
machines.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..cli.options import parse_requirements
from ..cli.states import parse_states
from ..client import ParsyncClient
from ..model.account import check_limit, check_tenant
from ..model.devices import read_indexes
from ..model.explanation import Explanation, Outlook
from ..model.ids import encode_id, shown
from ..model.limits import MAX_SLOTS
from ..model.node import NodeState
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import measure_evenness
from ..store.reads.find_tasks import TaskQuery, find_tasks
from ..store.reads.tasks import ANY, UNENDED, FoundTasks
from . import answers
from .asker import Asker
from .demand import Machine, measure_demand
from .health import freshness
from .operation import API_ROOT, Operation
from .query import LIMIT, OFFSET, Param, Query, path_and_query
from .replies import encode, reply
from .survey import Survey
from .surveyor import MOST_RENDERED_PAGES, LatestSurvey, Surveyor

MOST_TASKS_READ: Final = 5000
"""Maximum number of tasks that are read for one list."""

TASK_STATES: Final = tuple(state.value for state in TaskState if state is not TaskState.GONE)
TASK_STATE_PARAM: Final = Param("state", "waiting", "Only tasks in this state.", words=TASK_STATES)
NODE_STATE_PARAM: Final = Param(
    "state", "up", "Only nodes in this state.", words=tuple(state.value for state in NodeState)
)
NAME_PARAM: Final = Param("name", "proj.*", "Only tasks of such names: a pattern.")
TENANT_PARAM: Final = Param(
    "tenant", "research", "Only tasks of this tenant, and of tenants below it."
)
UNDER_PARAM: Final = Param("under", "stripe", "Only tasks under this limit.")
PAGE_PARAMS: Final = (LIMIT, OFFSET)
SLOTS_PARAM: Final = Param("slots", "4", "Slots of the machine.", least=0, most=MAX_SLOTS)
SHARED_PARAM: Final = Param(
    "shared_devices", "true", "It lets tasks without a device use its slots.", words=("true",)
)
REQUIRE_PARAM: Final = Param(
    "require", "zone=a", "Only tasks that require at least this.", repeated=True
)
OFFER_PARAMS: Final = (
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
MACHINE_PARAMS: Final = (SLOTS_PARAM, NAME_PARAM, SHARED_PARAM, REQUIRE_PARAM, *OFFER_PARAMS)


class Api:
    """Answers requests from the newest survey, and asks Redis about single tasks."""

    def __init__(self, surveyor: Surveyor, asker: Asker) -> None:
        self._surveyor = surveyor
        self._asker = asker

    def routes(self) -> list[Operation]:
        """Return the routes."""
        errors = {400: answers.Error, 503: answers.Error}
        errors_with_404 = {**errors, 404: answers.Error}
        return [
            Operation(
                "/nodes",
                self.nodes,
                {200: answers.Nodes, **errors},
                (NODE_STATE_PARAM, *PAGE_PARAMS),
            ),
            Operation("/nodes/{name}", self.node, {200: answers.OneNode, **errors_with_404}),
            Operation(
                "/partitions", self.partitions, {200: answers.Partitions, **errors}, PAGE_PARAMS
            ),
            Operation(
                "/schedulers", self.schedulers, {200: answers.Schedulers, **errors}, PAGE_PARAMS
            ),
            Operation(
                "/kinds", self.kinds, {200: answers.Kinds, **errors}, (NAME_PARAM, *PAGE_PARAMS)
            ),
            Operation(
                "/names", self.names, {200: answers.Names, **errors}, (NAME_PARAM, *PAGE_PARAMS)
            ),
            Operation("/tenants", self.tenants, {200: answers.Tenants, **errors}, PAGE_PARAMS),
            Operation("/limits", self.limits, {200: answers.Limits, **errors}, PAGE_PARAMS),
            Operation(
                "/tasks",
                self.tasks,
                {200: answers.TaskList, **errors},
                (TASK_STATE_PARAM, TENANT_PARAM, UNDER_PARAM, LIMIT),
            ),
            Operation(
                "/tasks/{id:path}",
                self.task,
                {200: answers.OneTask, **errors, 404: answers.OneTask},
            ),
            Operation(
                "/explain/{id:path}",
                self.explain,
                {200: answers.OneExplanation, **errors, 404: answers.OneExplanation},
            ),
            Operation("/demand", self.demand, {200: answers.Demand, **errors}, MACHINE_PARAMS),
        ]

    # -- of the survey -----------------------------------------------------------------------------

    async def nodes(self, request: Request, query: Query) -> Response:
        """List nodes: ?state=up, draining, suspect, leaving or down."""
        state = query.one_of(NODE_STATE_PARAM)
        return self._page(
            request, query, lambda survey: [n for n in survey.nodes if state in ("", n.state)]
        )

    async def node(self, request: Request, query: Query) -> Response:
        """Show one node."""
        wanted_name = request.path_params["name"]
        latest = self._surveyor.latest
        node = next((node for node in _survey(latest).nodes if node.name == wanted_name), None)
        if node is None:
            raise HTTPException(404, f"no node {shown(wanted_name)}")
        return _answer(latest, {"node": node})

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

    async def tenants(self, request: Request, query: Query) -> Response:
        """List tenants, as `parsync tenants` does."""
        return self._page(request, query, lambda survey: survey.tenancy.tenants)

    async def limits(self, request: Request, query: Query) -> Response:
        """List limits, as `parsync limits` does."""
        return self._page(request, query, lambda survey: survey.tenancy.limits)

    async def demand(self, request: Request, query: Query) -> Response:
        """Say how many slots and machines of a kind are wanted; an error if the survey is stale."""
        latest = self._surveyor.latest
        described = any(query.all(param.name) for param in OFFER_PARAMS)
        machine = Machine.of(
            query.number(SLOTS_PARAM, int(described), int(described)),
            query.pairs("resource"),
            query.pairs("label"),
            query.all("taint"),
            parse_requirements("require", query.all("require")),
            query.pattern("name"),
            read_indexes("device", query.all("device")) if query.all("device") else None,
            query.pairs("device_resource"),
            query.one_of(SHARED_PARAM) == "true",
        )
        survey = _survey(latest)
        if latest.stale:
            raise HTTPException(503, f"the survey is {latest.age_s:.0f} s old: {latest.error}")
        return self._cached(request, latest, lambda: measure_demand(survey, machine))

    def _page(
        self,
        request: Request,
        query: Query,
        find: Callable[[Survey], Sequence[Any]],
        extra_fields: dict[str, Any] | None = None,
    ) -> Response:
        """Reply with a page of a list of the survey.

        find: returns the list from the survey.
        extra_fields: further fields of the answer.
        """
        latest = self._surveyor.latest
        limit = query.limit()
        offset = query.offset()
        survey = _survey(latest)

        def make_page() -> dict[str, Any]:
            rows = find(survey)
            items = rows[offset : offset + limit]
            return {
                "total": len(rows),
                "limit": limit,
                "offset": offset,
                **(extra_fields or {}),
                "items": items,
            }

        return self._cached(request, latest, make_page)

    def _cached(
        self, request: Request, latest: LatestSurvey, make: Callable[[], dict[str, Any]]
    ) -> Response:
        """Reply with the answer that the first such request got for this survey.

        make: makes the answer if there is none yet.
        """
        key = path_and_query(request)
        if (body := latest.pages.get(key)) is None:
            body = encode(make())
            if len(latest.pages) < MOST_RENDERED_PAGES:
                latest.pages[key] = body
        head = json.dumps({**freshness(latest), "now_ms": _survey(latest).now_ms}).encode()
        return reply(head[:-1] + b"," + body[1:])

    # -- of single tasks ---------------------------------------------------------------------------

    async def tasks(self, request: Request, query: Query) -> Response:
        """List tasks: first those that have not ended; ?state=waiting, placed, running, ..."""
        criteria = task_query(query, query.limit())

        def look(client: ParsyncClient) -> bytes:
            listed = list_tasks(client, criteria)
            return encode({"limit": criteria.limit, "part": listed.part, "items": listed.tasks})

        return reply(await self._asker.ask(("tasks", criteria), look))

    async def task(self, request: Request, query: Query) -> Response:
        """Show one task: its place, its times, why it waits."""
        id = _id(request, "tasks")
        status: TaskStatus = await self._asker.ask(("task", id), lambda client: _status(client, id))
        return reply({"task": status}, 404 if status.state is TaskState.GONE else 200)

    async def explain(self, request: Request, query: Query) -> Response:
        """Explain one task: its obstacles at each node, what holds its needs, when it may start."""
        id = _id(request, "explain")
        explanation: Explanation = await self._asker.ask(
            ("explain", id), lambda client: client.explain(id)
        )
        return reply(
            {"explanation": explanation}, 404 if explanation.outlook is Outlook.GONE else 200
        )


def task_query(query: Query, limit: int) -> TaskQuery:
    """Return which tasks a request asks for: by state, tenant and limit. Raises InvalidInput.

    Without a state these are all tasks, and those that have not ended of a tenant or a limit.
    """
    state = query.one_of(TASK_STATE_PARAM)
    tenant = query.text(TENANT_PARAM.name)
    under = query.text(UNDER_PARAM.name)
    if tenant:
        check_tenant(tenant)
    if under:
        check_limit(under)
    default_states = UNENDED if tenant or under else ANY
    states = parse_states(state) if state else default_states
    return TaskQuery(frozenset(states), limit=limit, tenant=tenant, under=under)


def list_tasks(client: ParsyncClient, query: TaskQuery) -> FoundTasks:
    """Return the tasks of a query, with the reasons why they wait.

    Reads about MOST_TASKS_READ tasks at most.
    """
    client.check()
    listed = find_tasks(client.store, query, MOST_TASKS_READ)
    return replace(listed, tasks=client.with_reasons(listed.tasks))


def _status(client: ParsyncClient, id: str) -> TaskStatus:
    return client.with_reasons([client.status(id)])[0]


def id_in(request: Request, collection: str) -> str:
    """Return the id in the path behind /api/v1/COLLECTION/.

    The id is whole: the path parameter of the route lacks a line break at the end.
    """
    return str(request.scope["path"]).removeprefix(f"{API_ROOT}/{collection}/")


def _id(request: Request, collection: str) -> str:
    """Return the id that a path names. Raises InvalidInput."""
    id = id_in(request, collection)
    encode_id(id)
    return id


def _survey(latest: LatestSurvey) -> Survey:
    """Return the survey. Raises HTTPException 503 if there is none yet."""
    if latest.survey is None:
        raise HTTPException(
            503, f"the cluster was not read yet: {latest.error}", {"Retry-After": "1"}
        )
    return latest.survey


def _answer(latest: LatestSurvey, fields: dict[str, Any]) -> Response:
    """Reply with fields of the survey, and how old the survey is."""
    return reply({**freshness(latest), "now_ms": _survey(latest).now_ms, **fields})
