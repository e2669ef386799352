"""The JSON schema of what a submitter sends: a task, or a list of tasks."""

from collections.abc import Mapping
from typing import Any, Final

from ..model.ids import MAX_ID
from ..model.limits import MAX_BATCH
from ..model.options import OPTIONS
from .body import OVER_HTTP

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


def _options() -> Mapping[str, Mapping[str, Any]]:
    schemas = {}
    for option in OPTIONS:
        type = _TYPES[option.value]
        types = [type, "null"] if option.default in (None, "") else type
        items = {"items": {"type": "string"}} if type == "array" else {}
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
