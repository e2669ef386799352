"""The replies of the service: JSON, and errors as JSON."""

import json
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..cli.common import plain
from ..errors import InvalidInput, ParsyncError

JSON_MEDIA_TYPE: Final = "application/json"


def encode(value: Any) -> bytes:
    """Return dataclasses, mappings and sequences as JSON."""
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def reply(value: Any, status: int = 200) -> Response:
    """Reply with JSON that no cache keeps."""
    body = value if isinstance(value, bytes) else encode(value)
    return Response(body, status, {"Cache-Control": "no-store"}, media_type=JSON_MEDIA_TYPE)


def refuse(status: int, error: str) -> Response:
    """Reply with an error: its status, and one sentence."""
    return reply({"error": error, "status": status}, status)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Reply to an unknown path or a wrong method."""
    assert isinstance(error, HTTPException)
    sentences = {
        "Not Found": f"there is no {request.scope['path']}: see /api/v1",
        "Method Not Allowed": _not_allowed(request, error),
    }
    answer = refuse(error.status_code, sentences.get(error.detail, error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _not_allowed(request: Request, error: HTTPException) -> str:
    allowed = sorted({*(error.headers or {}).get("Allow", "").split(", ")} - {"HEAD"})
    return (
        f"{request.method} is not allowed: only {' and '.join(allowed)} "
        f"{'are' if len(allowed) > 1 else 'is'}"
    )


async def on_parsync_error(request: Request, error: Exception) -> Response:
    """Reply with 400 to wrong input, and with 503 to other errors of parsync.

    Such an error is a Redis server that does not answer or does not allow the request.
    """
    assert isinstance(error, ParsyncError)
    return refuse(400 if isinstance(error, InvalidInput) else 503, str(error))


async def on_bug(request: Request, error: Exception) -> Response:
    """Reply to an unexpected error with 500. The log has the error."""
    return refuse(500, f"unexpected: {type(error).__name__}; see the log of parsync serve")
