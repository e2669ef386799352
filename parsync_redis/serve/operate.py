"""The pages of operators: log in, confirm, do it, log out.

A form has a mark, and is sent by POST only.
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
from .gate import Gate, Operator
from .pages import Pages
from .passwords import USER_RULE
from .query import MOST_TEXT, Param, Query
from .writer import Writer

log = logging.getLogger("parsync.serve")

ROOT: Final = "/operator"
_OLD: Final = "This form is too old, or it is not from here. Nothing was done: open the page again."


class Operate:
    """Answers operators."""

    def __init__(self, gate: Gate, pages: Pages, client: ParsyncClient, writer: Writer) -> None:
        self._gate = gate
        self._pages = pages
        self._client = client
        self._writer = writer

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(ROOT, self.home),
            Route(f"{ROOT}/login", self.login, methods=["POST"]),
            Route(f"{ROOT}/logout", self.logout, methods=["POST"]),
            Route(f"{ROOT}/{{action}}", self.act, methods=["GET", "POST"]),
        ]

    def _say(self, text: str, status: int = 200, back: str = "/") -> Response:
        return self._pages.page(ROOT, "said.html", status, text=text, back=back, good=status == 200)

    # -- log in and out ----------------------------------------------------------------------------

    async def home(self, request: Request) -> Response:
        """Show who is logged in, or the form for it."""
        Query(request)
        if operator := self._gate.operator(request):
            mark = self._gate.mark(operator.key) if self._gate.by_password else ""
            return self._pages.page(ROOT, "operator.html", name=operator.name, mark=mark)
        return self._ask(request)

    def _ask(
        self, request: Request, wrong: str = "", status: int = 200, after: str = ""
    ) -> Response:
        """Return the form to log in, or say why there is none."""
        if not self._gate.by_password:
            named = f"a trusted proxy names in the header {self._gate.header}, with {USER_RULE}"
            text = f"Only operators may do this: whom {named}."
            return self._say(text, 403)
        fresh = Response()
        token = self._gate.login_token(request) or self._gate.give_login(request, fresh)
        values = {"mark": self._gate.mark(token), "wrong": wrong, "after": after}
        page = self._pages.page(ROOT, "login.html", status, **values)
        page.raw_headers.extend(pair for pair in fresh.raw_headers if pair[0] == b"set-cookie")
        return page

    async def login(self, request: Request) -> Response:
        """Begin a session."""
        if not self._gate.by_password:
            raise HTTPException(404)
        form = await read_form(request)
        after = _here(form.get("after", ""))
        if not self._gate.is_mark(self._gate.login_token(request), form.get("mark", "")):
            return self._ask(request, _OLD, 403, after)
        if wait_s := self._gate.wait_s(request):
            page = self._ask(request, "Too many attempts: wait a minute.", 429, after)
            page.headers["Retry-After"] = str(math.ceil(wait_s))
            return page
        name = form.get("name", "")
        address = self._gate.address(request)
        if not await self._gate.knows(name, form.get("password", "")):
            log.warning("operator %s from %s: the login is refused", shown(name), shown(address))
            return self._ask(request, "The name or the password is wrong.", 403, after)
        log.info("operator %s from %s has logged in", name, shown(address))
        answer = RedirectResponse(after or ROOT, 303)
        self._gate.open(request, answer, name)
        return answer

    async def logout(self, request: Request) -> Response:
        """End a session."""
        form = await read_form(request)
        operator = self._gate.operator(request)
        if operator is None or not self._gate.is_mark(operator.key, form.get("mark", "")):
            return self._say(_OLD, 403)
        log.info("operator %s has logged out", operator.name)
        answer = RedirectResponse(ROOT, 303)
        self._gate.close(request, answer)
        return answer

    # -- actions -----------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        """Ask whether to do something, or do it."""
        name = str(request.path_params["action"])
        if (action := ACTIONS.get(name)) is None:
            raise HTTPException(404)
        operator = self._gate.operator(request)
        back = ROOT
        try:
            if request.method == "POST":
                form = await read_form(request)
                target = form.get(action.of, "")
                back = _back(action, target)
                if operator is None or not self._gate.is_mark(operator.key, form.get("mark", "")):
                    return self._say(_OLD, 403, back)
                return await self._do(request, operator, name, target, form)
            target = Query(request, (Param(action.of, "n1", "What it is done to."),)).text(
                action.of
            )
            back = _back(action, target)
            if operator is None:
                return self._ask(
                    request,
                    after=f"{ROOT}/{name}?{request.scope['query_string'].decode('latin-1')}",
                )
            return await self._confirm(operator, name, target)
        except ParsyncError as error:
            return self._say(str(error), 400 if isinstance(error, InvalidInput) else 503, back)
        except HTTPException as error:  # the writer has too much to do, or the form is no form
            said = self._say(error.detail, error.status_code, back)
            said.headers.update(error.headers or {})
            return said

    async def _confirm(self, operator: Operator, name: str, target: str) -> Response:
        action = ACTIONS[name]
        plan = await self._writer.do(lambda: action.plan(self._client, target))  # as it is now
        values: dict[str, Any] = {
            "action": name,
            "of": action.of,
            "target": target,
            "back": _back(action, target),
        }
        mark = self._gate.mark(operator.key)
        return self._pages.page(
            ROOT, "confirm.html", plan=plan, name=operator.name, mark=mark, **values
        )

    async def _do(
        self, request: Request, operator: Operator, name: str, target: str, form: Mapping[str, str]
    ) -> Response:
        if len(target) > MOST_TEXT:
            raise InvalidInput(
                f"{ACTIONS[name].of} has {len(target)} characters: there may be {MOST_TEXT}"
            )
        who = f"operator {operator.name} from {shown(self._gate.address(request))}"
        try:
            by = f"{operator.name} over HTTP"
            text = await self._writer.do(lambda: ACTIONS[name].do(self._client, target, form, by))
        except ParsyncError as error:
            log.warning("%s: %s %s failed: %s", who, name, shown(target), error)
            raise
        log.info("%s: %s %s: %s", who, name, shown(target), text)
        return self._say(text, back=_back(ACTIONS[name], target))


def _back(action: Action, target: str) -> str:
    """Return the page from which people come to an action."""
    return (
        "/view/nodes"
        if action.of == "node"
        else f"/view/tasks?{urlencode({'id': target}, errors='replace')}"
    )


def _here(path: str) -> str:
    """Return a path of this site's pages for operators, '' for any other text."""
    return (
        path
        if path.startswith(f"{ROOT}/")
        and path.isascii()
        and path.isprintable()
        and "\\" not in path
        else ""
    )
