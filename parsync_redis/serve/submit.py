"""The way in for submitters: POST /api/v1/tasks, and GET and DELETE of their own tasks."""

import logging
import math
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..client import ParsyncClient
from ..client.submitter import Submitter
from ..errors import AccessDenied, Infeasible, InvalidInput, ParsyncError, ServerFull
from ..model.ids import encode_id, shown
from ..model.status import TaskStatus
from ..model.task import Submission, TaskState
from ..placement.reasons import reason_class
from ..store.reads.views import read_names
from ..submission import ACCEPTED, Item, explain_unknown
from . import answers
from .api import id_in
from .asker import Asker
from .body import make_tasks, parse_tasks, read_body
from .operation import ROOT, SubmitterOperation
from .replies import refuse, reply
from .rights import Forbidden
from .submitters import KnownSubmitter, Submitters
from .task_schema import task_schema
from .writer import Writer

log = logging.getLogger("parsync.serve")

SAY_S: Final = 10.0
"""While requests of submitters fail, the log says so once in this time."""


class _Tokened(SubmitterOperation):
    """A route for requests that have a token; others are left to the routes for viewers."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        # of a proxy that asks viewers for a password they have `Basic`
        headers = scope.get("headers", ())
        has_token = any(
            name == b"authorization" and value[:7].lower() == b"bearer " for name, value in headers
        )
        if scope.get("method") in ("GET", "HEAD") and not has_token:
            return Match.NONE, {}
        return super().matches(scope)


@dataclass(frozen=True, slots=True)
class SentTask:
    """The answer about one task: submit's word, and the error if it was not accepted, with its
    status.
    """

    id: str
    word: str
    error: str = ""
    status: int = 201

    def told(self) -> dict[str, Any]:
        """Return what the submitter is told."""
        if self.error:
            return {"id": self.id, "error": self.error, "status": self.status}
        return {"id": self.id, "url": url_of(self.id), "state": self.word}


def url_of(id: str) -> str:
    """Return where a task is asked for."""
    return f"{ROOT}/tasks/{quote(id, safe=':')}"


class Submit:
    """Answers submitters. only: there are no viewers, so that whoever comes must have a token."""

    def __init__(
        self,
        submitters: Submitters,
        client: ParsyncClient,
        asker: Asker,
        writer: Writer,
        only: bool,
    ) -> None:
        self._submitters = submitters
        self._client = client
        self._asker = asker
        self._writer = writer
        self._sender = Submitter(client.requests)
        self._only = only
        self._said_s = -math.inf

    def routes(self) -> list[SubmitterOperation]:
        """Return the routes; they go before those for viewers."""
        one = SubmitterOperation if self._only else _Tokened
        wrong: dict[int, Any] = dict.fromkeys((400, 401, 404, 429, 503), answers.Error)
        refused: dict[int, Any] = dict.fromkeys((400, 401, 403, 408, 413, 429, 503), answers.Error)
        sent = answers.SentOne | answers.SentTasks
        submits = {
            **refused,
            200: sent,
            201: sent,
            **dict.fromkeys((409, 422), answers.Error | answers.SentTasks),
        }
        cancels = {**wrong, 200: answers.Cancelled, 202: answers.Cancelled, 409: answers.Error}
        by = {"GET": {**wrong, 200: answers.OneOwnTask}, "DELETE": cancels}
        return [
            SubmitterOperation(
                "/tasks", self._guarded(self.submit), {"POST": submits}, task_schema()
            ),
            one("/tasks/{id:path}", self._guarded(self.one), by),
        ]

    def _guarded(
        self, answer: Callable[[Request, KnownSubmitter], Any]
    ) -> Callable[[Request], Any]:
        """Return an answer that finds out who asks, and makes replies of errors that tell nothing
        of the cluster.
        """

        @wraps(answer)
        async def guarded(request: Request) -> Response:
            kind, _, token = request.headers.get("authorization", "").partition(" ")
            submitter = self._submitters.find(token.strip()) if kind.lower() == "bearer" else None
            if submitter is None:
                said = refuse(
                    401, "a known token is needed, in a header: Authorization: Bearer TOKEN"
                )
                said.headers["WWW-Authenticate"] = "Bearer"
                return said
            try:
                found: Response = await answer(request, submitter)
            except Forbidden as error:
                return refuse(403, str(error))
            except InvalidInput as error:
                return refuse(400, str(error))
            except ParsyncError as error:
                return self._sorry(error)
            return found

        return guarded

    def _sorry(self, error: ParsyncError) -> Response:
        if time.monotonic() - self._said_s >= SAY_S:
            self._said_s = time.monotonic()
            log.warning("a request of a submitter failed: %s", error)
        if isinstance(error, AccessDenied):
            return refuse(
                503, "parsync serve has no rights to do this on its Redis server: tell who runs it"
            )
        text = (
            "the cluster does not answer now, and this may have been done or not: repeat it, with "
            "the same ids"
        )
        if isinstance(error, ServerFull):
            text = "the cluster has no memory left: nothing was done; repeat it later"
        said = refuse(503, text)
        said.headers["Retry-After"] = "1"
        return said

    # -- submit ------------------------------------------------------------------------------------

    async def submit(self, request: Request, submitter: KnownSubmitter) -> Response:
        """Submit a task, or a list of tasks."""
        # before the body: one that is too large, does not come or is no JSON counts as well
        _take(submitter, 1)
        body = await read_body(request, submitter.rights.most_bytes)
        tasks, several = await run_in_threadpool(parse_tasks, body)
        most = submitter.rights.most_tasks
        if not 1 <= len(tasks) <= most:
            return refuse(
                413 if tasks else 400, f"the list has {len(tasks)} tasks: it must have 1 to {most}"
            )
        _take(submitter, len(tasks), taken=1)
        make_id = await self._writer.do(lambda: self._client.requests.make_ids(submitter.prefix))
        items, made = await run_in_threadpool(make_tasks, submitter, tasks, several, make_id)
        try:
            sent = await self._writer.do(lambda: self._send(submitter, items, made))
            self._asker.forget(*(("own", one.id) for one in sent))
        except Infeasible:  # near a node that could never hold it
            return refuse(
                422, "no task was submitted: the node of `near` could never hold one that names it"
            )
        failed = [(i, one) for i, one in enumerate(sent) if one.error]
        status = (
            failed[0][1].status
            if failed
            else 201
            if any(one.word == "submitted" for one in sent)
            else 200
        )
        if not several:
            answer = reply(sent[0].told() | ({"status": status} if failed else {}), status)
            if not failed:
                answer.headers["Location"] = url_of(sent[0].id)
            return answer
        wrong = (
            {"error": f"task {failed[0][0]}: {failed[0][1].error}", "status": status}
            if failed
            else {}
        )
        return reply({**wrong, "tasks": [one.told() for one in sent]}, status)

    def _send(
        self, submitter: KnownSubmitter, items: Sequence[Item], made: Sequence[Submission]
    ) -> list[SentTask]:
        """Submit tasks; return what became of each."""
        words = self._sender.submit(items)
        ids = [str(item["id"]) for item in items]
        before = [i for i, (_, word) in enumerate(words) if word == "exists"]
        names = (
            [status.name for status in self._client.statuses([ids[i] for i in before])]
            if before
            else []
        )
        other = {
            i: name for i, name in zip(before, names, strict=True) if name not in ("", made[i].name)
        }
        known: list[str] | None = None
        found: list[SentTask] = []
        for i, (task, word) in enumerate(words):
            if i in other:
                error = (
                    f"task {shown(ids[i])} exists, and is another: its name is {other[i]}; give "
                    "this one another id"
                )
                found.append(SentTask(ids[i], word, error, 409))
            elif word in ACCEPTED:
                found.append(SentTask(ids[i], word))
            elif word == "unknown":
                if known is None:
                    known = self._client.requests.do(lambda: read_names(self._client.store))
                found.append(SentTask(ids[i], word, _unknown(submitter, task, known), 422))
            else:
                found.append(SentTask(ids[i], word, _misfit(made[i]), 422))
        return found

    # -- one task ----------------------------------------------------------------------------------

    async def one(self, request: Request, submitter: KnownSubmitter) -> Response:
        """Show or cancel a task of this submitter; another's is not there."""
        _take(submitter, 1)
        id = id_in(request, "tasks")
        if not id.startswith(submitter.prefix):
            return _none(id)
        key = encode_id(id)
        if request.method != "DELETE":
            status: TaskStatus = await self._asker.ask(
                ("own", id), lambda client: client.status(id)
            )
            return _none(id) if status.state is TaskState.GONE else reply({"task": told(status)})
        why = f"cancelled by {submitter.name} over HTTP"
        (word,) = await self._writer.do(lambda: self._client.requests.cancel([key], why=why))
        self._asker.forget(("own", id))
        if word in ("cancelled", "asked"):
            return reply({"id": id, "state": word}, 200 if word == "cancelled" else 202)
        return (
            _none(id)
            if word == TaskState.GONE
            else refuse(409, f"task {shown(id)} is {word} already")
        )


def told(task: TaskStatus) -> dict[str, Any]:
    """Return what a submitter is told of its task: nothing of other tasks, and of nodes only the
    one that it is on.
    """
    return {
        "id": task.id,
        "name": task.name,
        "state": task.state,
        "node": task.node,
        "attempt": task.attempt,
        "starts": task.starts,
        "times": task.times,
        "cancel_asked": task.cancel_asked,
        "waits_for": reason_class(task.why) if task.state is TaskState.WAITING else "",
        "outcome": task.why if task.state.final else "",
    }


def _none(id: str) -> Response:
    return refuse(404, f"you have no task {shown(id)}")


def _take(submitter: KnownSubmitter, count: int, taken: int = 0) -> None:
    """Take so many tasks of a submitter's rate, before anything is done for them; an error if they
    are not left.

    taken: so many of them were taken already. They stay taken, and who comes again needs all of
    them.
    """
    if wait_s := submitter.bucket.take(count - taken, time.monotonic()):
        rights = submitter.rights
        wait_s += taken / rights.rate
        text = (
            f"too fast: you may submit {rights.rate:g} tasks a second, and {rights.burst} at once"
        )
        raise HTTPException(429, text, {"Retry-After": str(math.ceil(wait_s))})


def _unknown(submitter: KnownSubmitter, task: Submission, known: Sequence[str]) -> str:
    """Return why a task of an unknown name was refused; it names only tasks that this submitter may
    submit.
    """
    if yours := [name for name in known if submitter.rights.may_name(name)]:
        return explain_unknown(task.name, yours)
    return f"no node knows a task {shown(task.name)}, nor any other that you may submit"


def _misfit(task: Submission) -> str:
    """Return why a task was refused that fits nowhere. task: without what its app declares."""
    asked = f"it asks for {task.options.needs.text}, and for what its app declares"
    said = f"no node could ever hold it, even if it were empty: {asked}"
    return f"{said}; with wait_for_capacity it would wait for such a node"
