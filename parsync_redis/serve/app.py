"""The web application: which path is answered by what. Each answer is made from memory."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import ParsyncError
from .health import judge_health, judge_readiness
from .metrics import CONTENT_TYPE, render_metrics
from .replies import on_bug, on_http_error, on_parsync_error, reply
from .surveyor import Latest, Surveyor


def make_app(surveyor: Surveyor) -> Starlette:
    """Make the application that shows what a surveyor has read."""

    def judged(judge: Callable[[Latest], tuple[bool, dict[str, Any]]]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            well, body = judge(surveyor.latest)
            return reply(body, 200 if well else 503)

        return answer

    async def metrics(request: Request) -> Response:
        return Response(render_metrics(surveyor.latest), media_type=CONTENT_TYPE)

    routes = [
        Route("/healthz", judged(judge_health)),
        Route("/readyz", judged(judge_readiness)),
        Route("/metrics", metrics),
    ]
    handlers: Any = {HTTPException: on_http_error, ParsyncError: on_parsync_error, Exception: on_bug}
    return Starlette(routes=routes, exception_handlers=handlers)
