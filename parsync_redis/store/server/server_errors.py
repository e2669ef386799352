"""Errors of a server: translate errors of redis-py into those of errors.py; wait between tries."""

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


def growing(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield pauses in seconds, with jitter and without end; each is up to twice the last.

    No pause is longer than `longest_s`.
    """
    pause_s = first_s
    while True:
        yield random.uniform(0.5, 1.0) * pause_s
        pause_s = min(longest_s, 2 * pause_s)


AWAY: Final = (ServerUnreachable, ServerReadOnly, ServerFull)
"""Errors of a server that is away, or that takes no writes now."""

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
"""Codes of error replies of a server that takes no writes: the cause, and what ends the cause."""
_NOT_SERVING: Final = {
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
"""Codes of error replies of a server that does not serve now, and their meaning."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that keeps a cluster from placing tasks. repair: a command or an act that ends it."""

    why: str
    repair: str

    def __str__(self) -> str:
        """Return cause and repair in one sentence."""
        return f"{self.why}: {self.repair}"


def no_writes(address: str, error: object, primary: str = "") -> Fault | None:
    """Return the fault of a server whose reply says that it takes no writes, else None.

    primary: the server that a replica follows, 'HOST:PORT', '' if unknown.
    """
    cause = _cause_of(error) if isinstance(error, ResponseError) else None
    if cause is None:
        return None
    why, repair = cause
    whose = f" of {primary}" if primary else ""
    return Fault(f"the server at {address} takes no writes: {why}{whose}", repair)


def _cause_of(error: ResponseError) -> tuple[str, str] | None:
    """Return why a server takes no writes and what ends that; None if the reply does not say so."""
    code = _code_of(error)
    return _NO_WRITES.get("AOF" if code == "MISCONF" and "AOF" in str(error) else code)


def _code_of(error: ResponseError) -> str:
    """Return the code of an error reply: its first word, which redis-py may have removed."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError):
        return "OOM" if isinstance(error, OutOfMemoryError) else "READONLY"
    first = _IN_PIPELINE.sub("", str(error), count=1).split(" ", 1)[0]
    return str(getattr(error, "status_code", None) or first)


def translate(address: str, error: Exception) -> Exception:
    """Return the error of errors.py for an error of redis-py or of the system.

    Other errors are returned unchanged. Raise the returned error `from None`.
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
    if refused := refusal(address, error):
        return refused
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
        return ServerUnreachable(f"no answer from the server at {address}: {error}")
    return error


def _no_primary(address: str, answers: str) -> ParsyncError:
    """Return the error for Sentinels that name no primary. answers: what the Sentinels said."""
    if "Authentication" in answers or "password" in answers:
        return AccessDenied(
            f"the Sentinels of {address} refuse the login: sentinel_password in its address is "
            "theirs"
        )
    return ServerUnreachable(
        f"the Sentinels of {address} know no primary: they do not answer, it has not been chosen "
        "yet, or they call it by another name"
    )


_IN_PIPELINE: Final = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
"""Words that redis-py puts before the server's error reply."""


def refusal(address: str, error: Exception, primary: str = "") -> ParsyncError | None:
    """Return the error for a server that answers but executes no request now, else None.

    primary: the server that a replica follows, 'HOST:PORT', '' if unknown.
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
    if code in _NOT_SERVING:
        return ServerUnreachable(f"{where} does not serve now: {_NOT_SERVING[code]}")
    return None


class Backoff:
    """Growing pauses with jitter before the next try, and a log line for each new error.

    who: the beginning of each log line.
    again_s: seconds after which the same error is logged again.
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
        """Return how many seconds to wait after an error.

        The error's class is logged if it differs from the last logged class, or if that line is
        `again_s` old.
        """
        self._pause_s = min(self._longest_s, self._pause_s * 2 or self._longest_s / 50)
        now_s = time.monotonic()
        if type(error) is not self._said or now_s - self._said_s >= self._again_s:
            self._said = type(error)
            self._said_s = now_s
            self._log.warning("%s: %s; it asks again until that is over", self._who, error)
        return random.uniform(0.5, 1.0) * self._pause_s

    def well(self) -> None:
        """Note a success: the next pause is the shortest, and the next error is logged."""
        if self._said is not None:
            self._log.info("%s: it goes on", self._who)
        self._said = None
        self._pause_s = 0.0


_DENIED: Final = ("NOPERM", "ACL failure in script", "The user executing the script can't")
"""Error replies for a command that a login may not send, or that a script may not call for it."""


def is_denied(error: object) -> bool:
    """Return True if an error reply says that the login may not do this, also inside a script."""
    if isinstance(error, NoPermissionError):
        return True
    return isinstance(error, ResponseError) and any(words in str(error) for words in _DENIED)


def denied(address: str, action: str, error: object) -> ParsyncError:
    """Return the error for an action that the login may not do; the error names the fix."""
    return AccessDenied(
        f"the login at {address} may not do this: {action}{': ' if action else ''}{error}; "
        "`parsync acl` prints what each role needs"
    )


def refusal_to(address: str, error: Exception) -> ParsyncError | None:
    """Return the error for a server that refuses this login or serves nobody now, else None."""
    return denied(address, "", error) if is_denied(error) else refusal(address, error)


def is_damage(error: object) -> bool:
    """Return True if an error reply says that a key is damaged."""
    return isinstance(error, ResponseError) and (
        "PSRECORD" in str(error) or "WRONGTYPE" in str(error)
    )


def damage(action: str, error: object) -> ParsyncError:
    """Return the error that names a damaged key; action: what met the damage, as a verb."""
    text = str(error).partition("PSRECORD ")[2] or str(error)
    return DamagedState(
        f"{action}: {text}; no script has written that: see `parsync doctor --audit`"
    )


def _untrusted(error: BaseException | None) -> str:
    """Return why TLS did not accept the server's certificate; '' for any other error."""
    while error is not None:
        text = str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or text
        if "CERTIFICATE_VERIFY_FAILED" in text:
            after_prefix = text.partition("verify failed:")[2]
            return after_prefix.partition(" (_ssl")[0].strip() or text
        error = error.__cause__ or error.__context__
    return ""
