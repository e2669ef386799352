"""The web application: the routes of `parsync serve` and their handlers."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .. import __version__
from ..errors import ParsyncError
from . import answers
from .api import Api
from .asker import Asker
from .events import EventsApi
from .feed import EventFeed
from .gate import peer_of
from .health import judge_health, judge_health_for_submitters, judge_readiness
from .metrics import CONTENT_TYPE, render_metrics
from .openapi import make_document, operations_of
from .operation import Operation
from .pages import Pages
from .query import Query
from .replies import encode, on_bug, on_http_error, on_parsync_error, reply
from .shares import SharedRequests, Shares
from .surveyor import LatestSurvey, Surveyor
from .write_access import WriteAccess


def make_app(
    surveyor: Surveyor,
    asker: Asker,
    feed: EventFeed,
    cluster: str,
    hosts: Sequence[str],
    write_access: WriteAccess | None = None,
    requests: int = 1000,
) -> Starlette:
    """Return the application that shows what `surveyor` and `feed` have read.

    `asker` asks Redis for the rest.

    hosts: the host names to answer to.
    write_access: the parts that may change the cluster.
    requests: the maximum number of requests at a time.
    """

    def judged(
        judge: Callable[[LatestSurvey], tuple[bool, dict[str, Any]]],
    ) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            well, body = judge(surveyor.latest)
            return reply(body, 200 if well else 503)

        return answer

    async def metrics(request: Request) -> Response:
        latest = surveyor.latest
        key = f"metrics {latest.age_s or 0:.0f}"  # the age is a metric as well
        if key not in latest.pages:
            latest.pages[key] = render_metrics(latest, feed.failed)
        return Response(latest.pages[key], media_type=CONTENT_TYPE)

    write_access = write_access or WriteAccess()
    pages = Pages(surveyor, asker, feed, cluster, operators=write_access.auth is not None)
    views = [
        Route("/readyz", judged(judge_readiness)),
        Route("/metrics", metrics),
        *Api(surveyor, asker).routes(),
        *EventsApi(feed, asker).routes(),
        *pages.routes(),
    ]
    health = judged(judge_health_for_submitters if write_access.submit_only else judge_health)
    routes = [
        Route("/healthz", health),
        *write_access.routes(pages),
        *([] if write_access.submit_only else views),
    ]

    async def index(request: Request, query: Query) -> Response:
        """Tell the version of parsync, and the paths."""
        return reply(
            {"parsync": __version__, "paths": list(dict.fromkeys(route.path for route in routes))}
        )

    @cache
    def document() -> bytes:
        return encode(
            make_document(
                operations_of(routes), write_access.auth.scheme if write_access.auth else None
            )
        )

    async def openapi(request: Request, query: Query) -> Response:
        """Return the OpenAPI document of the paths under /api/v1."""
        return reply(document())

    routes.append(Operation("/openapi.json", openapi, {200: answers.Document, 400: answers.Error}))
    routes.append(Operation("", index, {200: answers.Index, 400: answers.Error}))
    handlers: Any = {
        HTTPException: on_http_error,
        ParsyncError: on_parsync_error,
        Exception: on_bug,
    }
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    address_of = write_access.auth.address if write_access.auth else peer_of
    shared = Middleware(SharedRequests, shares=Shares(requests), address_of=address_of)
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[shared, trusted])
