"""Translate errors of redis-py into those of errors.py: the server is away, full, read-only,
refuses the login.
"""

import logging
import math
import random
import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from redis.asyncio.sentinel import MasterNotFoundError as LoopMasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import MasterNotFoundError

from ...errors import (
    AccessDenied,
    DamagedState,
    ParsyncError,
    ServerFull,
    ServerReadOnly,
    ServerUnfit,
    ServerUnreachable,
)

# Pauses between tries.


def growing(first_s: float, longest_s: float) -> Iterator[float]:
    """Give seconds with jitter, without end: each time up to twice as many, up to the longest."""
    pause_s = first_s
    while True:
        yield random.uniform(0.5, 1.0) * pause_s
        pause_s = min(longest_s, 2 * pause_s)


AWAY: Final = (ServerUnreachable, ServerReadOnly, ServerFull)
"""Errors of a server that is away, or takes no writes now."""

_FREE_DISK: Final = "give it room on the disk and the right to write there"
_NO_WRITES: Final = {
    "AOF": ("its disk fails; the server's log says why", _FREE_DISK),
    "MISCONF": (
        "its disk fails; the server's log says why",
        f"{_FREE_DISK}; only snapshots fail, so redis-cli CONFIG SET stop-writes-on-bgsave-error "
        "no helps until then",
    ),
    "NOREPLICAS": (
        "it has fewer replicas in step than min-replicas-to-write asks for",
        "start its replicas, or redis-cli CONFIG SET min-replicas-to-write 0",
    ),
    "OOM": (
        "its memory is full",
        "redis-cli CONFIG SET maxmemory BYTES gives it more; parsync tasks purge --state succeeded "
        "frees some",
    ),
    "READONLY": (
        "it is a read-only replica",
        "use the primary's address; if it is to be the primary: redis-cli REPLICAOF NO ONE",
    ),
}
"""Error replies of a server that takes no writes, by their code: why, and what ends that."""
_NOT_NOW: Final = {
    "BUSY": "a script of somebody runs for too long there; redis-cli SCRIPT KILL ends it",
    "CLUSTERDOWN": "its cluster is down",
    "MASTERDOWN": "it is a replica and has lost its primary",
    "UNBLOCKED": "it became a replica, or somebody has ended the wait with CLIENT UNBLOCK",
    "TRYAGAIN": "its cluster is moving keys",
    "MOVED": (
        "it is of a cluster and has not these keys; the address of a cluster is "
        "redis+cluster://HOST:PORT"
    ),
    "ASK": "its cluster is moving keys",
}
"""Error replies by their code, and what they mean."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that keeps a cluster from placing tasks. repair: a command or an act that ends it."""

    why: str
    repair: str

    def __str__(self) -> str:
        """Return both in one sentence."""
        return f"{self.why}: {self.repair}"


def no_writes(address: str, error: object, primary: str = "") -> Fault | None:
    """Return the fault of a server whose reply says that it takes no writes; None for any other
    reply.

    primary: the server that a replica follows, 'HOST:PORT', if that is known.
    """
    cause = _cause_of(error) if isinstance(error, ResponseError) else None
    if cause is None:
        return None
    why, repair = cause
    return Fault(
        f"the server at {address} takes no writes: {why}{f' of {primary}' if primary else ''}",
        repair,
    )


def _cause_of(error: ResponseError) -> tuple[str, str] | None:
    """Return why a server takes no writes, and what ends that; None if the reply does
    not say so.
    """
    code = _code_of(error)
    return _NO_WRITES.get("AOF" if code == "MISCONF" and "AOF" in str(error) else code)


def _code_of(error: ResponseError) -> str:
    """Return the code of an error reply: its first word, which redis-py may have taken away."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError):
        return "OOM" if isinstance(error, OutOfMemoryError) else "READONLY"
    first = _IN_PIPELINE.sub("", str(error), count=1).split(" ", 1)[0]
    return str(getattr(error, "status_code", None) or first)


def translate(address: str, error: Exception) -> Exception:
    """Return the error to raise `from None` for one of redis-py or the system; other errors are
    returned unchanged.
    """
    if isinstance(error, AuthenticationError | AuthorizationError):
        return AccessDenied(f"the server at {address} refuses the login: {error}")
    if isinstance(error, MasterNotFoundError | LoopMasterNotFoundError):
        return _no_primary(address, str(error))
    if is_denied(error):
        return denied(address, "", error)
    if reason := _untrusted(error):
        repair = "ssl_ca_certs in its address names the CA"
        return ServerUnfit(f"the server at {address} is not trusted: {reason}; {repair}")
    if is_damage(error):
        return damage("a read", error)
    if found := refusal(address, error):
        return found
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
        return ServerUnreachable(f"no answer from the server at {address}: {error}")
    return error


def _no_primary(address: str, told: str) -> ParsyncError:
    """Return the error for Sentinels that name no primary. told: what each of them answered."""
    if "Authentication" in told or "password" in told:
        return AccessDenied(
            f"the Sentinels of {address} refuse the login: sentinel_password in its address is "
            "theirs"
        )
    return ServerUnreachable(
        f"the Sentinels of {address} know no primary: they do not answer, it has not been chosen "
        "yet, or they call it "
        "by another name"
    )


_IN_PIPELINE: Final = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
"""The words that redis-py puts before the server's own."""


def refusal(address: str, error: Exception, primary: str = "") -> ParsyncError | None:
    """Return the error for a server that answers, but does no request now; None for any other
    error.

    primary: the server that a replica follows, 'HOST:PORT', if that is known.
    """
    where = f"the server at {address}"
    text = _IN_PIPELINE.sub("", str(error), count=1)
    if isinstance(error, OutOfMemoryError):
        return ServerFull(
            f"the memory of {where} is full, nothing was done: give it more (maxmemory), or keep "
            "the records of ended "
            "tasks for less long (retention_s); what runs goes on and frees its slots"
        )
    if isinstance(error, ReadOnlyError):
        whose = f" of {primary}" if primary else ""
        return ServerReadOnly(
            f"{where} is a read-only replica{whose}, nothing was done: use the primary's address"
        )
    if isinstance(error, BusyLoadingError):
        return ServerUnreachable(f"{where} does not serve yet: it loads its data")
    if "max number of clients" in text:
        return ServerUnreachable(f"{where} lets nobody in: {text}; raise its maxclients")
    if not isinstance(error, ResponseError):
        return None
    if cause := _cause_of(error):
        return ServerReadOnly(f"{where} takes no writes, nothing was done: {': '.join(cause)}")
    code = _code_of(error)
    if code in _NOT_NOW:
        return ServerUnreachable(f"{where} does not serve now: {_NOT_NOW[code]}")
    return None


class Backoff:
    """Pauses before the next try, which grow and have jitter; and a log line for each new error.

    who: the beginning of each line of the log. again_s: after how long the same error is logged
    again.
    """

    def __init__(
        self, log: logging.Logger, who: str, longest_s: float = 1.0, again_s: float = math.inf
    ) -> None:
        self._log = log
        self._who = who
        self._longest_s = longest_s
        self._again_s = again_s
        self._said_s = 0.0
        self._pause_s = 0.0
        self._said: type[Exception] | None = None

    def pause_s(self, error: Exception) -> float:
        """Return how long to wait after an error.

        The class that was logged last is logged again after `again_s`.
        """
        self._pause_s = min(self._longest_s, self._pause_s * 2 or self._longest_s / 50)
        now_s = time.monotonic()
        if type(error) is not self._said or now_s - self._said_s >= self._again_s:
            self._said = type(error)
            self._said_s = now_s
            self._log.warning("%s: %s; it asks again until that is over", self._who, error)
        return random.uniform(0.5, 1.0) * self._pause_s

    def well(self) -> None:
        """Begin anew after a success."""
        if self._said is not None:
            self._log.info("%s: it goes on", self._who)
        self._said = None
        self._pause_s = 0.0


_DENIED: Final = ("NOPERM", "ACL failure in script", "The user executing the script can't")
"""Errors for a command that a login may not send, or that a script may not call for it."""


def is_denied(error: object) -> bool:
    """Return True if an error reply says that the login may not do this, by itself or inside a
    script.
    """
    if isinstance(error, NoPermissionError):
        return True
    return isinstance(error, ResponseError) and any(words in str(error) for words in _DENIED)


def denied(address: str, what: str, error: object) -> ParsyncError:
    """Return the error that says what this login may not do, and the fix."""
    return AccessDenied(
        f"the login at {address} may not do this: {what}{': ' if what else ''}{error}; "
        "`parsync acl` prints what each role needs"
    )


def refusal_to(address: str, error: Exception) -> ParsyncError | None:
    """Return the error for a server that answers, and does nothing for this login now; None for any
    other error.
    """
    return denied(address, "", error) if is_denied(error) else refusal(address, error)


def is_damage(error: object) -> bool:
    """Return True if an error reply says that a key is damaged."""
    return isinstance(error, ResponseError) and (
        "PSRECORD" in str(error) or "WRONGTYPE" in str(error)
    )


def damage(what: str, error: object) -> ParsyncError:
    """Return the error that says what is damaged, and where to look."""
    text = str(error).partition("PSRECORD ")[2] or str(error)
    return DamagedState(f"{what}: {text}; no script has written that: see `parsync doctor --audit`")


def _untrusted(error: BaseException | None) -> str:
    """Return why TLS did not accept the server's certificate; '' if the error is another one."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return str(error).partition("verify failed:")[2].partition(" (_ssl")[0].strip() or str(
                error
            )
        error = error.__cause__ or error.__context__
    return ""
