"""Places that addresses share: whoever takes all that he gets leaves places to every
other address.
"""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .replies import refuse

ALWAYS: Final = frozenset(("/healthz", "/readyz", "/metrics"))
"""Paths that are answered however many requests there are: their answers come from memory, at once.
"""

PREFIX: Final = 64
"""Bits of an IPv6 address that name its owner, who has all addresses that begin so."""

ADDRESS: Final = ContextVar("address", default="")
"""The owner of the address from which the request comes that is being answered."""


def owner_of(address: str) -> str:
    """Return the address itself, or the network of an IPv6 address; an IPv4 address may be written
    in IPv6.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, PREFIX), strict=False))


class Shares:
    """So many places.

    An owner of addresses gets one while he has fewer than are free: alone, he gets half of all.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._taken = Counter[str]()

    def take(self, owner: str) -> bool:
        """Take a place; False if the owner gets none. Whoever takes a place gives it back."""
        if self._taken[owner] >= self._free:
            return False
        self._taken[owner] += 1
        self._free -= 1
        return True

    def give_back(self, owner: str) -> None:
        """Give a place back."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        self._free += 1


class SharedRequests:
    """Middleware that lets the addresses share the requests at a time.

    address_of: from where a request comes.
    """

    def __init__(self, app: ASGIApp, shares: Shares, address_of: Callable[[Request], str]) -> None:
        self._app = app
        self._shares = shares
        self._address_of = address_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with 503."""
        owner = owner_of(self._address_of(Request(scope)))
        ADDRESS.set(owner)
        if scope["path"] in ALWAYS:
            await self._app(scope, receive, send)
        elif self._shares.take(owner):
            try:
                await self._app(scope, receive, send)
            finally:
                self._shares.give_back(owner)
        else:
            answer = refuse(503, "too many requests at a time: come again in a second")
            answer.headers["Retry-After"] = "1"
            await answer(scope, receive, send)
