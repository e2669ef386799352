"""Places that addresses share.

An address that takes all that it can get leaves places to every other address.
"""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .replies import refuse

UNLIMITED_PATHS: Final = frozenset(("/healthz", "/readyz", "/metrics"))
"""Paths that are always answered, because their answers come from memory at once."""

OWNER_BITS: Final = 64
"""The first bits of an IPv6 address name its owner, who has all addresses that begin so."""

OWNER: Final = ContextVar("address", default="")
"""The owner of the address of the request that is being answered."""


def owner_of(address: str) -> str:
    """Return the owner of an address: the address itself, or the network of an IPv6 address.

    An IPv4 address may be written as an IPv6 address.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, OWNER_BITS), strict=False))


class Shares:
    """A number of places that owners of addresses share.

    An owner gets a place while the owner has fewer places than are free. So a single owner gets
    half of the places.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._taken = Counter[str]()

    def take(self, owner: str) -> bool:
        """Take a place and return True; return False if the owner gets none."""
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
    """Middleware that lets addresses share the number of requests at a time.

    address_of: returns the address that a request comes from.
    """

    def __init__(self, app: ASGIApp, shares: Shares, address_of: Callable[[Request], str]) -> None:
        self._app = app
        self._shares = shares
        self._address_of = address_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse the request with 503."""
        owner = owner_of(self._address_of(Request(scope)))
        OWNER.set(owner)
        if scope["path"] in UNLIMITED_PATHS:
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
