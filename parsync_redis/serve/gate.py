"""Tells operators from viewers, by a login with a password or by the header of a reverse proxy.

A login begins a session. Sessions are in memory, so a restart logs everybody out.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ..errors import InvalidInput
from ..model.ids import shown
from .passwords import MOST_PASSWORD, NOBODY, USER, Hash
from .rate import Attempts
from .shares import owner_of

SESSION_S: Final = 8 * 3600.0
"""Seconds from the login to the end of a session."""

MOST_SESSIONS: Final = 1000
"""Maximum number of sessions; beyond, the oldest session ends."""

LOGINS_PER_ADDRESS: Final = 5
LOGINS_IN_ALL: Final = 30
"""Attempts to log in per minute, from one address and from all addresses."""

Networks = Sequence[IPv4Network | IPv6Network]


class Sessions:
    """Sessions by their tokens, which only the browser of the operator has.

    The caller says what time it is, in seconds from any start.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @staticmethod
    def new_token() -> str:
        """Return a new token, for a session or for the login form."""
        return secrets.token_urlsafe(32)

    def open(self, user: str, now_s: float) -> str:
        """Begin a session of an operator, and return its token."""
        token = self.new_token()
        self._open[token] = (user, now_s)
        while len(self._open) > MOST_SESSIONS:
            self._open.popitem(last=False)
        return token

    def user(self, token: str, now_s: float) -> str | None:
        """Return the operator of a session; None if there is no such session."""
        user, since_s = self._open.get(token, ("", 0.0))
        if not user:
            return None
        if now_s - since_s >= SESSION_S:
            del self._open[token]
            return None
        return user

    def close(self, token: str) -> None:
        """End a session."""
        self._open.pop(token, None)

    def mark(self, who: str) -> str:
        """Return the mark of a form, which proves that this process made the form for `who`.

        who: a token, or the name of an operator.
        """
        return hmac.new(self._key, who.encode(), hashlib.sha256).hexdigest()

    def is_mark(self, who: str, mark: str) -> bool:
        """Return whether this is the mark of a form for `who`."""
        return hmac.compare_digest(self.mark(who).encode(), mark.encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator who sends a request.

    key: what the marks of the operator's forms are made for: the token of the session, or the name.
    """

    name: str
    key: str


def read_proxies(addresses: Sequence[str]) -> Networks:
    """Return the networks of the proxies. Raises InvalidInput."""
    try:
        return [ip_network(address, strict=False) for address in addresses]
    except ValueError as error:
        rule = "it must be an IP address or a network, 10.0.0.5 or 10.0.0.0/24"
        raise InvalidInput(f"--trusted-proxy is not valid: {error}: {rule}") from None


class OperatorAuth:
    """Decides which requests come from an operator.

    hashes: name -> hash of the password.
    header: the header in which the trusted `proxies` name the operator; '' if operators log in with
        a password.
    """

    def __init__(
        self, cluster: str, hashes: Mapping[str, Hash], header: str = "", proxies: Networks = ()
    ) -> None:
        self.by_password = not header
        self.header = header
        self._hashes = hashes
        self._proxies = proxies
        self._cookie: Final = f"parsync_{cluster}"  # browsers keep one jar for all ports of a host
        self._login_cookie: Final = f"{self._cookie}_login"
        self._sessions = Sessions()
        self._attempts = Attempts(LOGINS_PER_ADDRESS, LOGINS_IN_ALL)
        self._one_at_a_time = asyncio.Lock()

    @property
    def scheme(self) -> Mapping[str, str]:
        """Return where a request names its operator, as a security scheme of OpenAPI."""
        return (
            {"in": "header", "name": self.header}
            if self.header
            else {"in": "cookie", "name": self._cookie}
        )

    # -- who asks ----------------------------------------------------------------------------------

    def operator(self, request: Request) -> Operator | None:
        """Return the operator who sends the request; None if it is from nobody known."""
        if self.header:
            names = request.headers.getlist(self.header)
            is_known = (
                self._is_proxy(peer_of(request)) and len(names) == 1 and USER.fullmatch(names[0])
            )
            return Operator(names[0], f"header {names[0]}") if is_known else None
        token = self.token(request)
        name = self._sessions.user(token, time.monotonic())
        return Operator(name, token) if name else None

    def address(self, request: Request) -> str:
        """Return the address that the request comes from; behind a trusted proxy, the client's."""
        peer = peer_of(request)
        if self._is_proxy(peer) and (forwarded_for := request.headers.getlist("x-forwarded-for")):
            return forwarded_for[-1].rpartition(",")[2].strip()[:64]
        return peer

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._proxies)

    # -- forms -------------------------------------------------------------------------------------

    def token(self, request: Request) -> str:
        """Return the token of the browser's session; '' if there is none."""
        return request.cookies.get(self._cookie, "")

    def login_token(self, request: Request) -> str:
        """Return the browser's token for the login form; '' if there is none.

        The token is not the session's. A browser that follows a link from another site sends no
        cookie, and gets the login form. The session of that browser must not end because of the
        form.
        """
        return request.cookies.get(self._login_cookie, "")

    def give_login(self, request: Request, answer: Response) -> str:
        """Give the browser a token for the login form, and return the token."""
        return self._give(request, answer, self._login_cookie, self._sessions.new_token())

    def mark(self, key: str) -> str:
        """Return the mark of a form. key: the operator's key, or the browser's token."""
        return self._sessions.mark(key)

    def is_mark(self, key: str, mark: str) -> bool:
        """Return whether the form comes from a page that was made for this key."""
        return bool(key) and self._sessions.is_mark(key, mark)

    # -- log in and out ----------------------------------------------------------------------------

    def wait_s(self, request: Request) -> float:
        """Count an attempt to log in, and return 0.0.

        If no attempt is allowed now, return the seconds until one is allowed.
        """
        return self._attempts.take(owner_of(self.address(request)), time.monotonic())

    async def knows(self, name: str, password: str) -> bool:
        """Return whether an operator has this password.

        Only one check runs at a time, because a check takes much memory.
        """
        hash = self._hashes.get(name, NOBODY)
        async with self._one_at_a_time:
            fits = await run_in_threadpool(hash.fits, password[: MOST_PASSWORD + 1])
        return fits and name in self._hashes

    def open(self, request: Request, answer: Response, name: str) -> None:
        """Begin the session of an operator."""
        self._sessions.close(self.token(request))
        self._give(request, answer, self._cookie, self._sessions.open(name, time.monotonic()))
        answer.delete_cookie(self._login_cookie, samesite="strict", httponly=True)

    def close(self, request: Request, answer: Response) -> None:
        """End the session."""
        self._sessions.close(self.token(request))
        answer.delete_cookie(self._cookie, samesite="strict", httponly=True)

    @staticmethod
    def _give(request: Request, answer: Response, cookie: str, token: str) -> str:
        https = "https" in (
            request.scope.get("scheme"),
            request.headers.get("x-forwarded-proto", ""),
        )
        answer.set_cookie(cookie, token, httponly=True, samesite="strict", secure=https)
        return token


def peer_of(request: Request) -> str:
    """Return the address at the other end of the connection; '' if there is none."""
    return request.client.host if request.client else ""


def check_header(name: str) -> str:
    """Return the name of a header; raises InvalidInput."""
    if not name.isascii() or not name.replace("-", "").isalnum() or len(name) > 64:
        raise InvalidInput(
            f"--operator-header {shown(name)} is not valid: it must be the name of a header, "
            "X-Forwarded-User"
        )
    return name
