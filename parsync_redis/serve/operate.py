"""The pages of operators: log in, confirm an action, do the action, log out.

A form has a mark, and is sent by POST.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..model.ids import shown
from .actions import ACTIONS, Action
from .body import read_form
from .gate import Operator, OperatorAuth
from .pages import Pages
from .passwords import USER_RULE
from .query import MOST_CHARACTERS, Param, Query
from .writer import Writer

log = logging.getLogger("parsync.serve")

OPERATOR_ROOT: Final = "/operator"
_OLD_FORM: Final = (
    "This form is too old, or it is not from here. Nothing was done: open the page again."
)


class OperatorPages:
    """Answers operators."""

    def __init__(
        self, auth: OperatorAuth, pages: Pages, client: ParsyncClient, writer: Writer
    ) -> None:
        self._auth = auth
        self._pages = pages
        self._client = client
        self._writer = writer

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(OPERATOR_ROOT, self.home),
            Route(f"{OPERATOR_ROOT}/login", self.login, methods=["POST"]),
            Route(f"{OPERATOR_ROOT}/logout", self.logout, methods=["POST"]),
            Route(f"{OPERATOR_ROOT}/{{action}}", self.act, methods=["GET", "POST"]),
        ]

    def _say(self, text: str, status: int = 200, back_url: str = "/") -> Response:
        return self._pages.page(
            OPERATOR_ROOT, "said.html", status, text=text, back_url=back_url, good=status == 200
        )

    # -- log in and out ----------------------------------------------------------------------------

    async def home(self, request: Request) -> Response:
        """Show who is logged in, or the form to log in."""
        Query(request)
        if operator := self._auth.operator(request):
            mark = self._auth.mark(operator.key) if self._auth.by_password else ""
            return self._pages.page(OPERATOR_ROOT, "operator.html", name=operator.name, mark=mark)
        return self._ask(request)

    def _ask(
        self, request: Request, problem: str = "", status: int = 200, after: str = ""
    ) -> Response:
        """Return the form to log in, or say why there is none. after: the path to open after it."""
        if not self._auth.by_password:
            rule = f"a trusted proxy names in the header {self._auth.header}, with {USER_RULE}"
            text = f"Only operators may do this: whom {rule}."
            return self._say(text, 403)
        fresh = Response()
        token = self._auth.login_token(request) or self._auth.give_login(request, fresh)
        values = {"mark": self._auth.mark(token), "problem": problem, "after": after}
        page = self._pages.page(OPERATOR_ROOT, "login.html", status, **values)
        page.raw_headers.extend(pair for pair in fresh.raw_headers if pair[0] == b"set-cookie")
        return page

    async def login(self, request: Request) -> Response:
        """Begin a session."""
        if not self._auth.by_password:
            raise HTTPException(404)
        form = await read_form(request)
        after = _local_path(form.get("after", ""))
        if not self._auth.is_mark(self._auth.login_token(request), form.get("mark", "")):
            return self._ask(request, _OLD_FORM, 403, after)
        if wait_s := self._auth.wait_s(request):
            page = self._ask(request, "Too many attempts: wait a minute.", 429, after)
            page.headers["Retry-After"] = str(math.ceil(wait_s))
            return page
        name = form.get("name", "")
        address = self._auth.address(request)
        if not await self._auth.knows(name, form.get("password", "")):
            log.warning("operator %s from %s: the login is refused", shown(name), shown(address))
            return self._ask(request, "The name or the password is wrong.", 403, after)
        log.info("operator %s from %s has logged in", name, shown(address))
        answer = RedirectResponse(after or OPERATOR_ROOT, 303)
        self._auth.open(request, answer, name)
        return answer

    async def logout(self, request: Request) -> Response:
        """End a session."""
        form = await read_form(request)
        operator = self._auth.operator(request)
        if operator is None or not self._auth.is_mark(operator.key, form.get("mark", "")):
            return self._say(_OLD_FORM, 403)
        log.info("operator %s has logged out", operator.name)
        answer = RedirectResponse(OPERATOR_ROOT, 303)
        self._auth.close(request, answer)
        return answer

    # -- actions -----------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        """Ask whether to do an action, or do the action."""
        name = str(request.path_params["action"])
        if (action := ACTIONS.get(name)) is None:
            raise HTTPException(404)
        operator = self._auth.operator(request)
        back_url = OPERATOR_ROOT
        try:
            if request.method == "POST":
                form = await read_form(request)
                target = form.get(action.target_field, "")
                back_url = _page_of(action, target)
                if operator is None or not self._auth.is_mark(operator.key, form.get("mark", "")):
                    return self._say(_OLD_FORM, 403, back_url)
                return await self._do(request, operator, name, target, form)
            target = Query(
                request, (Param(action.target_field, "n1", "What it is done to."),)
            ).text(action.target_field)
            back_url = _page_of(action, target)
            if operator is None:
                return self._ask(
                    request,
                    after=f"{OPERATOR_ROOT}/{name}?{request.scope['query_string'].decode('latin-1')}",
                )
            return await self._confirm(operator, name, target)
        except ParsyncError as error:
            return self._say(str(error), 400 if isinstance(error, InvalidInput) else 503, back_url)
        except HTTPException as error:  # the writer has too much to do, or the form is no form
            page = self._say(error.detail, error.status_code, back_url)
            page.headers.update(error.headers or {})
            return page

    async def _confirm(self, operator: Operator, name: str, target: str) -> Response:
        action = ACTIONS[name]
        plan = await self._writer.do(lambda: action.plan(self._client, target))  # as it is now
        values: dict[str, Any] = {
            "action": name,
            "target_field": action.target_field,
            "target": target,
            "back_url": _page_of(action, target),
        }
        mark = self._auth.mark(operator.key)
        return self._pages.page(
            OPERATOR_ROOT, "confirm.html", plan=plan, name=operator.name, mark=mark, **values
        )

    async def _do(
        self, request: Request, operator: Operator, name: str, target: str, form: Mapping[str, str]
    ) -> Response:
        if len(target) > MOST_CHARACTERS:
            raise InvalidInput(
                f"{ACTIONS[name].target_field} has {len(target)} characters: "
                f"there may be {MOST_CHARACTERS}"
            )
        who = f"operator {operator.name} from {shown(self._auth.address(request))}"
        try:
            by = f"{operator.name} over HTTP"
            text = await self._writer.do(lambda: ACTIONS[name].do(self._client, target, form, by))
        except ParsyncError as error:
            log.warning("%s: %s %s failed: %s", who, name, shown(target), error)
            raise
        log.info("%s: %s %s: %s", who, name, shown(target), text)
        return self._say(text, back_url=_page_of(ACTIONS[name], target))


def _page_of(action: Action, target: str) -> str:
    """Return the URL of the page with the target of an action."""
    return (
        "/view/nodes"
        if action.target_field == "node"
        else f"/view/tasks?{urlencode({'id': target}, errors='replace')}"
    )


def _local_path(path: str) -> str:
    """Return the path if it is a page for operators; '' for any other text."""
    is_plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if is_plain and path.startswith(f"{OPERATOR_ROOT}/") else ""
