"""A route of the API, with what its OpenAPI document says of it: parameters, statuses
and answers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .query import Param, Query

ROOT: Final = "/api/v1"


class Operation(Route):
    """A route that reads its query by `params`, and answers with a type of answers.py for each
    status.

    token: it is for submitters. body: the schema of a body, None if it takes none.
    """

    def __init__(
        self,
        path: str,
        answer: Callable[[Request, Query], Awaitable[Response]],
        answers: Mapping[int, Any],
        params: Sequence[Param] = (),
    ) -> None:
        @wraps(answer)
        async def read(request: Request) -> Response:
            return await answer(request, Query(request, params))

        super().__init__(f"{ROOT}{path}", read)
        self.answers = {"GET": answers}
        self.params = params
        self.token = False
        self.body = None


class SubmitterOperation(Route):
    """The same for submitters, whose requests have a token and no query. answers: by method."""

    params: Sequence[Param] = ()
    token = True

    def __init__(
        self,
        path: str,
        answer: Callable[[Request], Awaitable[Response]],
        answers: Mapping[str, Mapping[int, Any]],
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{ROOT}{path}", answer, methods=[*answers])
        self.answers = answers
        self.body = body
