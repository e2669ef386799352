"""The routes of the API, with their parameters, statuses and types of answers for OpenAPI."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .query import Param, Query

API_ROOT: Final = "/api/v1"


class Operation(Route):
    """A route that reads its query by `params`.

    answers: status -> type of the answer (answers.py).
    token: requests have the token of a submitter.
    body: the JSON schema of the body; None if there is no body.
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

        super().__init__(f"{API_ROOT}{path}", read)
        self.answers = {"GET": answers}
        self.params = params
        self.token = False
        self.body = None


class SubmitterOperation(Route):
    """A route for submitters, whose requests have a token and no query.

    answers: method -> status -> type of the answer.
    """

    params: Sequence[Param] = ()
    token = True

    def __init__(
        self,
        path: str,
        answer: Callable[[Request], Awaitable[Response]],
        answers: Mapping[str, Mapping[int, Any]],
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{API_ROOT}{path}", answer, methods=[*answers])
        self.answers = answers
        self.body = body
