"""The body of a request, read up to a limit, and the tasks in it with their JSON schema."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import InvalidInput
from ..model.ids import MAX_ID, shown
from ..model.limits import MAX_BATCH
from ..model.near import tasks_named
from ..model.options import CLIENT_NAMES, OPTIONS, unknown_option
from ..model.task import Submission
from ..submission import Item, make_submission, numbered
from .rights import Forbidden, judge
from .submitters import KnownSubmitter

BODY_S: Final = 30.0
"""Seconds within which a body must come."""

OVER_HTTP: Final = (
    *("name", "args", "kwargs", "id", "countdown", "queue"),
    *CLIENT_NAMES,
    *("expires", "time_limit", "soft_time_limit", "ignore_result"),
)
"""The options of a task over HTTP: those of `ParsyncClient.submit` that cannot run another task.

A link, a header or a reply_to is left out, because each can name any task or queue.
"""

MOST_FORM_BYTES: Final = 16 * 2**10

_TYPES: Final[Mapping[type, str]] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    list: "array",
    Mapping: "object",
}
_SECONDS_SCHEMA: Final = {"type": ["number", "null"], "exclusiveMinimum": 0}
_PLAIN_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "name": {"type": "string", "description": "The name of the task."},
    "args": {"type": ["array", "null"], "description": "Positional arguments."},
    "kwargs": {"type": ["object", "null"], "description": "Arguments by name."},
    "id": {
        "type": ["string", "null"],
        "maxLength": MAX_ID,
        "description": (
            "Its id, which begins with the name of the submitter and a colon; without one it gets "
            "one."
        ),
    },
    "countdown": {
        "type": ["number", "null"],
        "minimum": 0,
        "description": "Seconds before which it does not run.",
    },
    "queue": {
        "type": ["string", "null"],
        "maxLength": 255,
        "description": "The Celery queue that it is routed to.",
    },
    "time_limit": {**_SECONDS_SCHEMA, "description": "Seconds after which its run is ended."},
    "soft_time_limit": {
        **_SECONDS_SCHEMA,
        "description": "Seconds after which its run gets SoftTimeLimitExceeded.",
    },
    "ignore_result": {"type": ["boolean", "null"], "description": "Keep no result."},
}


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return the body. Raises HTTPException: 413 if the body is too large, 408 if it is late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise HTTPException(
                        413, f"the body is too large: it may have {most_bytes:,} bytes"
                    )
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {BODY_S:.0f} s") from None
    return bytes(body)


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form as browsers send it. Raises HTTPException 400 otherwise."""
    body = await read_body(request, MOST_FORM_BYTES)
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict"
            )
        )
    except ValueError:
        raise HTTPException(
            400, "this is no form: it must be application/x-www-form-urlencoded"
        ) from None


def parse_tasks(body: bytes) -> tuple[Sequence[Any], bool]:
    """Return the tasks of a body, and whether the body is a list of tasks.

    The tasks are not checked. Raises InvalidInput.
    """
    try:
        value = json.loads(body, parse_constant=_no_number)
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deep") from None
    if isinstance(value, list):
        return value, True
    return [value], False


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def make_tasks(
    submitter: KnownSubmitter, tasks: Sequence[Any], several: bool, make_id: Callable[[], str]
) -> tuple[list[Item], list[Submission]]:
    """Return a submitter's tasks, with ids, as items and as submissions.

    several: whether the body is a list.
    make_id: makes an id for a task that has none.

    Raises InvalidInput, and Forbidden if the submitter has no right to a task; the errors say the
    number of the task in the list.
    """

    def check(task: Any) -> tuple[Item, Submission]:
        return _checked(submitter, task, make_id)

    checked = numbered(check, tasks, 0) if several else [check(tasks[0])]
    items = [item for item, _ in checked]
    submissions = [task for _, task in checked]
    for i, task in enumerate(submissions):
        try:
            judge(submitter.rights, task)
            _judge_near(submitter, task)
        except Forbidden as error:
            raise Forbidden(f"task {i}: {error}" if several else str(error)) from None
    return items, submissions


def _checked(
    submitter: KnownSubmitter, task: Any, make_id: Callable[[], str]
) -> tuple[Item, Submission]:
    """Return one task with an id. Raises InvalidInput."""
    if not isinstance(task, dict):
        raise InvalidInput(
            f"{shown(task)} is not a task: it must be an object with these fields: "
            f"{', '.join(OVER_HTTP)}"
        )
    if unknown := [key for key in task if key not in OVER_HTTP]:
        raise unknown_option("option", unknown[0], OVER_HTTP, task[unknown[0]])
    own_id = task.get("id")
    item = {**task, "id": make_id() if own_id is None else submitter.check_id(own_id)}
    return item, make_submission(item)


def _judge_near(submitter: KnownSubmitter, task: Submission) -> None:
    """Raise Forbidden if `near` names a task of somebody else."""
    options = task.options
    for subject, target_id in tasks_named(options.near, options.prefer):
        if not target_id.startswith(submitter.prefix):
            rule = f"you may name only your own tasks, whose ids begin with {submitter.prefix!r}"
            raise Forbidden(f"{subject}: {rule}")


def _options() -> Mapping[str, Mapping[str, Any]]:
    schemas = {}
    for option in OPTIONS:
        type = _TYPES[option.value]
        types = [type, "null"] if option.default in (None, "") else type
        items: dict[str, Any] = {"items": {"type": "string"}} if type == "array" else {}
        if option.name == "limits":
            types = ["array", "object"]
            items["additionalProperties"] = {"type": "integer"}
        if option.name == "prefer":
            items["items"] = {"type": ["string", "object"]}
        schemas[option.name] = {
            "type": types,
            **items,
            "description": f"{option.help} It is {option.rule}.",
        }
    return schemas


def task_schema() -> dict[str, Any]:
    """Return the schema of the body of POST /api/v1/tasks."""
    fields = {**_PLAIN_FIELDS, **_options()}
    task = {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {name: fields[name] for name in OVER_HTTP},
    }
    return {"anyOf": [task, {"type": "array", "items": task, "minItems": 1, "maxItems": MAX_BATCH}]}
