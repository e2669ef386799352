"""Web applications that submit: `wsgi` for gunicorn, `asgi` for uvicorn.

Each answers with the ids of its tasks.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from parsync_redis import AsyncParsyncClient

from .app import add

BEFORE = add.delay(20, 3).id
"""The id of a task that is submitted when the module is imported: with `gunicorn --preload`, before
the fork.
"""


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "application/json")])
    answer = {"pid": os.getpid(), "before": BEFORE, "id": add.delay(1, 2).id}
    return [json.dumps(answer).encode()]


async def submit(request: Request) -> JSONResponse:
    result = await run_in_threadpool(add.delay, 1, 2)
    async with AsyncParsyncClient.from_url(
        os.environ["PARSYNC_URL"], os.environ["PARSYNC_CLUSTER"]
    ) as client:
        awaited = await client.submit(add.name, [30, 4])
        done = await client.wait([awaited], timeout=60)
    return JSONResponse({"id": result.id, "awaited": awaited, "state": done[awaited].state.value})


asgi = Starlette(routes=[Route("/", submit)])
