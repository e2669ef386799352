"""The API for submitters: they submit tasks, and see and cancel their own tasks."""

import logging
import math
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any
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
from ..submission import ACCEPTED, Item, explain_unknown, explain_unknown_limit, read_limits
from . import answers
from .api import id_in
from .asker import Asker
from .body import make_tasks, parse_tasks, read_body, task_schema
from .operation import API_ROOT, SubmitterOperation
from .replies import refuse, reply
from .rights import Forbidden
from .submitters import KnownSubmitter, Submitters
from .surveyor import FAILURE_WARNING_EVERY_S
from .writer import Writer

log = logging.getLogger("parsync.serve")


class _TokenOperation(SubmitterOperation):
    """A route for requests with a token. Requests without a token go to the routes for viewers."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        # behind a proxy that asks for a password, requests of viewers have `Basic`
        headers = scope.get("headers", ())
        has_token = any(
            name == b"authorization" and value[:7].lower() == b"bearer " for name, value in headers
        )
        if scope.get("method") in ("GET", "HEAD") and not has_token:
            return Match.NONE, {}
        return super().matches(scope)


@dataclass(frozen=True, slots=True)
class SentTask:
    """The answer about one task.

    word: the word of `submit` about the task.
    error: why the task was not accepted; '' if it was.
    status: the status of HTTP.
    """

    id: str
    word: str
    error: str = ""
    status: int = 201

    def as_json(self) -> dict[str, Any]:
        """Return the answer for the submitter."""
        if self.error:
            return {"id": self.id, "error": self.error, "status": self.status}
        return {"id": self.id, "url": url_of(self.id), "state": self.word}


def url_of(id: str) -> str:
    """Return the path of a task in the API."""
    return f"{API_ROOT}/tasks/{quote(id, safe=':')}"


class SubmitterApi:
    """Answers submitters.

    only: whether there are no viewers, so that every request must have a token.
    """

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
        self._warned_s = -math.inf

    def routes(self) -> list[SubmitterOperation]:
        """Return the routes. The routes must stand before the routes for viewers."""
        operation = SubmitterOperation if self._only else _TokenOperation
        errors: dict[int, Any] = dict.fromkeys((400, 401, 404, 429, 503), answers.Error)
        submit_errors: dict[int, Any] = dict.fromkeys(
            (400, 401, 403, 408, 413, 429, 503), answers.Error
        )
        sent = answers.SentOne | answers.SentTasks
        submits = {
            **submit_errors,
            200: sent,
            201: sent,
            **dict.fromkeys((409, 422), answers.Error | answers.SentTasks),
        }
        cancels = {**errors, 200: answers.Cancelled, 202: answers.Cancelled, 409: answers.Error}
        answers_by_method = {"GET": {**errors, 200: answers.OneOwnTask}, "DELETE": cancels}
        return [
            SubmitterOperation(
                "/tasks", self._guarded(self.submit), {"POST": submits}, task_schema()
            ),
            operation("/tasks/{id:path}", self._guarded(self.task), answers_by_method),
        ]

    def _guarded(
        self, answer: Callable[[Request, KnownSubmitter], Any]
    ) -> Callable[[Request], Any]:
        """Return an endpoint that finds out who asks, and calls `answer` with the submitter.

        The endpoint turns errors into replies that say nothing about the cluster.
        """

        @wraps(answer)
        async def guarded(request: Request) -> Response:
            kind, _, token = request.headers.get("authorization", "").partition(" ")
            submitter = self._submitters.find(token.strip()) if kind.lower() == "bearer" else None
            if submitter is None:
                refusal = refuse(
                    401, "a known token is needed, in a header: Authorization: Bearer TOKEN"
                )
                refusal.headers["WWW-Authenticate"] = "Bearer"
                return refusal
            try:
                answered: Response = await answer(request, submitter)
            except Forbidden as error:
                return refuse(403, str(error))
            except InvalidInput as error:
                return refuse(400, str(error))
            except ParsyncError as error:
                return self._sorry(error)
            return answered

        return guarded

    def _sorry(self, error: ParsyncError) -> Response:
        """Reply to a failure of the cluster with 503."""
        if time.monotonic() - self._warned_s >= FAILURE_WARNING_EVERY_S:
            self._warned_s = time.monotonic()
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
        response = refuse(503, text)
        response.headers["Retry-After"] = "1"
        return response

    # -- submit ------------------------------------------------------------------------------------

    async def submit(self, request: Request, submitter: KnownSubmitter) -> Response:
        """Submit a task, or a list of tasks."""
        # counts before the body is read: a body that is too large, late or no JSON counts as well
        _take_from_rate(submitter, 1)
        body = await read_body(request, submitter.rights.most_bytes)
        tasks, several = await run_in_threadpool(parse_tasks, body)
        most = submitter.rights.most_tasks
        if not 1 <= len(tasks) <= most:
            return refuse(
                413 if tasks else 400, f"the list has {len(tasks)} tasks: it must have 1 to {most}"
            )
        _take_from_rate(submitter, len(tasks), taken_before=1)
        make_id = await self._writer.do(lambda: self._client.requests.make_ids(submitter.prefix))
        items, submissions = await run_in_threadpool(make_tasks, submitter, tasks, several, make_id)
        try:
            sent = await self._writer.do(lambda: self._send(submitter, items, submissions))
            self._asker.forget(*(("own", task.id) for task in sent))
        except Infeasible:  # `near` names a task whose node could never hold the new task
            return refuse(
                422, "no task was submitted: the node of `near` could never hold one that names it"
            )
        answers_by_task = [task.as_json() for task in sent]
        failed = next((i for i, task in enumerate(sent) if task.error), None)
        if failed is not None:
            status = sent[failed].status
            if not several:
                return reply({**answers_by_task[0], "status": status}, status)
            error = f"task {failed}: {sent[failed].error}"
            return reply({"error": error, "status": status, "tasks": answers_by_task}, status)
        status = 201 if any(task.word == "submitted" for task in sent) else 200
        if several:
            return reply({"tasks": answers_by_task}, status)
        answer = reply(answers_by_task[0], status)
        answer.headers["Location"] = url_of(sent[0].id)
        return answer

    def _send(
        self, submitter: KnownSubmitter, items: Sequence[Item], submissions: Sequence[Submission]
    ) -> list[SentTask]:
        """Submit tasks, and return the answer about each task."""
        words = self._sender.submit(items, submissions=submissions)
        ids = [str(item["id"]) for item in items]
        existing = [i for i, (_, word) in enumerate(words) if word == "exists"]
        statuses = self._client.statuses([ids[i] for i in existing]) if existing else []
        name_of_other_task = {
            i: status.name
            for i, status in zip(existing, statuses, strict=True)
            if status.name not in ("", submissions[i].name)
        }
        task_names: list[str] | None = None
        answers: list[SentTask] = []
        for i, (task, word) in enumerate(words):
            if i in name_of_other_task:
                error = (
                    f"task {shown(ids[i])} exists, and is another: its name is "
                    f"{name_of_other_task[i]}; give this one another id"
                )
                answers.append(SentTask(ids[i], word, error, 409))
            elif word in ACCEPTED:
                answers.append(SentTask(ids[i], word))
            elif word == "unknown":
                if task_names is None:
                    task_names = self._client.requests.do(lambda: read_names(self._client.store))
                answers.append(
                    SentTask(ids[i], word, _explain_unknown(submitter, task, task_names), 422)
                )
            elif word == "nolimit":
                error = self._explain_limit(submitter, submissions[i])
                answers.append(SentTask(ids[i], word, error, 422))
            else:
                answers.append(SentTask(ids[i], word, _explain_misfit(submissions[i]), 422))
        return answers

    def _explain_limit(self, submitter: KnownSubmitter, task: Submission) -> str:
        """Return why a task under an unknown limit was refused.

        task: without what its app declares. The text has only limits that this submitter may name.
        """
        if not task.options.limits:
            return "its app declares a limit that the policy of this cluster does not have"
        client = self._client
        limits = client.requests.do(lambda: read_limits(client.store, task))
        return explain_unknown_limit(
            task, [limit for limit in limits if submitter.rights.may_use_limit(limit)]
        )

    # -- one task ----------------------------------------------------------------------------------

    async def task(self, request: Request, submitter: KnownSubmitter) -> Response:
        """Show or cancel a task of this submitter; another's is not there."""
        _take_from_rate(submitter, 1)
        id = id_in(request, "tasks")
        if not id.startswith(submitter.prefix):
            return _none(id)
        key = encode_id(id)
        if request.method != "DELETE":
            status: TaskStatus = await self._asker.ask(
                ("own", id), lambda client: client.status(id)
            )
            return (
                _none(id) if status.state is TaskState.GONE else reply({"task": own_task(status)})
            )
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


def own_task(task: TaskStatus) -> dict[str, Any]:
    """Return what a submitter may know about its task.

    The answer says nothing about other tasks, and names only the node of this task.
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


def _take_from_rate(submitter: KnownSubmitter, count: int, taken_before: int = 0) -> None:
    """Take `count` tasks from the rate of a submitter, before anything is done for them.

    taken_before: how many of them were taken before. The taken ones stay taken, and a request that
    comes again needs its full count. Raises HTTPException 429 if the rate has too few.
    """
    if wait_s := submitter.bucket.take(count - taken_before, time.monotonic()):
        rights = submitter.rights
        wait_s += taken_before / rights.rate
        text = (
            f"too fast: you may submit {rights.rate:g} tasks a second, and {rights.burst} at once"
        )
        raise HTTPException(429, text, {"Retry-After": str(math.ceil(wait_s))})


def _explain_unknown(submitter: KnownSubmitter, task: Submission, names: Sequence[str]) -> str:
    """Return why a task of an unknown name was refused.

    names: the names that nodes know; the text has only names that this submitter may submit.
    """
    if yours := [name for name in names if submitter.rights.may_name(name)]:
        return explain_unknown(task.name, yours)
    return f"no node knows a task {shown(task.name)}, nor any other that you may submit"


def _explain_misfit(task: Submission) -> str:
    """Return why a task that fits no node was refused.

    task: without what its app declares.
    """
    needs = f"it asks for {task.options.needs.text}, and for what its app declares"
    reason = f"no node could ever hold it, even if it were empty: {needs}"
    return f"{reason}; with wait_for_capacity it would wait for such a node"
