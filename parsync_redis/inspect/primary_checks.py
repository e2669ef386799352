"""The checks of each primary of a Redis Cluster, for `parsync doctor`.

A check concerns the tags, the load, the memory, the replicas or the settings of a primary.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from redis.exceptions import ResponseError

from ..errors import AccessDenied, ParsyncError, ServerUnfit, ServerUnreachable
from ..store.reader import Reader
from ..store.reads.schedulers import holdings_of
from ..store.server.server_info import LIST_SETTINGS, check_info
from ..store.store import Store
from .server_checks import Check, judge_lists, judge_memory, judge_persistence, judge_role

_COVERAGE = "cluster-require-full-coverage"
_TIMEOUT = "cluster-node-timeout"

MOST_NODE_TIMEOUT_MS: Final = 5000
"""The longest good `cluster-node-timeout`: the tags of a lost primary stand still so long."""

MOST_LAG_S: Final = 10
MOST_LAG_BYTES: Final = 1 << 20
"""A replica that lags further behind would lose too much if it took over."""


def read_settings(server: Reader) -> dict[str, str] | None:
    """Return the settings that the check-up judges; None if this login may not read settings."""
    try:
        settings = server.read("config_get", "save", *LIST_SETTINGS, _COVERAGE, _TIMEOUT)
    except (AccessDenied, ResponseError):  # some servers have no CONFIG
        return None
    return {str(name): str(value) for name, value in settings.items()}


def check_primaries(store: Store) -> Iterator[Check]:
    """Describe each primary, and warn of what the primary lacks."""
    for address, server in store.servers().items():
        try:
            if server is None:
                yield _away(store, address, "the server does not answer")
                continue
            info = check_info(address, server.read("info", "everything"), in_cluster=True)
            settings = read_settings(server)
        except ServerUnreachable as error:
            yield _away(store, address, str(error))
        except ServerUnfit as error:
            yield Check("primary", "fail", str(error))
        except ParsyncError as error:
            yield _away(store, address, str(error))
        else:
            yield Check(
                "primary", "ok", f"{address}: {holdings_of(store, address)}; {_facts(info)}"
            )
            yield from judge_primary(address, info, settings)
            server_checks = (
                judge_memory(info),
                judge_lists(settings),
                judge_persistence(info, settings),
                judge_role(info),
            )
            yield from (
                replace(check, text=f"{address}: {check.text}")
                for check in server_checks
                if check.level != "ok"
            )


def read_clocks(store: Store) -> dict[str, tuple[float, float]]:
    """Return each primary's clock less this process's monotonic clock: (least, most) seconds."""
    clocks = {}
    for address, server in store.servers().items():
        if server is None:
            continue  # check_primaries names it
        before_s = time.monotonic()
        try:
            seconds, microseconds = server.read("time")
        except ParsyncError:
            continue
        server_s = int(seconds) + int(microseconds) / 1e6
        clocks[address] = (server_s - time.monotonic(), server_s - before_s)
    return clocks


def judge_clocks(clocks: Mapping[str, tuple[float, float]], gap_s: float) -> Iterator[Check]:
    """Warn of primaries whose clock is half a gap or more ahead of the slowest primary's clock.

    clocks: see `read_clocks`. A difference that the answers' delays may explain is none.
    """
    slowest = min(clocks, key=lambda address: clocks[address][1], default="")
    for address, (least_s, _) in clocks.items():
        ahead_s = least_s - clocks[slowest][1]
        if ahead_s >= gap_s / 2:
            text = (
                f"{address}: its clock is {ahead_s:.2f} s ahead of that of {slowest}: so much "
                "later go the tasks that were submitted to its shards"
            )
            yield Check("clocks", "warn", text, "have NTP set the clocks of all primaries")


def _away(store: Store, address: str, why: str) -> Check:
    """Return the failed check of a primary that is away."""
    text = f"{address}: {holdings_of(store, address)}, which stand still: {why}"
    repair = (
        "start it, or at a replica of it: redis-cli CLUSTER FAILOVER FORCE (TAKEOVER if most "
        "primaries are lost)"
    )
    return Check("primary", "fail", text, repair)


def _facts(info: Mapping[str, Any]) -> str:
    """Return the load, the memory and the replicas of a primary, as text."""
    load = int(info.get("instantaneous_ops_per_sec", 0))
    used = int(info.get("used_memory", 0))
    replicas = [
        f"{address} {_bytes_behind(info, replica)} bytes behind"
        for address, replica in _replicas(info)
    ]
    return f"{load} commands/s, {used / 2**20:.0f} MiB; replicas: {', '.join(replicas) or 'none'}"


def _replicas(info: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the replicas of a primary, as (address, fields of INFO)."""
    replicas = [
        info[f"slave{n}"]
        for n in range(int(info.get("connected_slaves", 0)))
        if f"slave{n}" in info
    ]
    return [(f"{replica['ip']}:{replica['port']}", replica) for replica in replicas]


def _bytes_behind(info: Mapping[str, Any], replica: Mapping[str, Any]) -> int:
    return max(0, int(info.get("master_repl_offset", 0)) - int(replica.get("offset", 0)))


def judge_primary(
    address: str, info: Mapping[str, Any], settings: Mapping[str, str] | None
) -> Iterator[Check]:
    """Warn of what makes the loss of a primary worse.

    Three things do: no replica, a replica that lags behind, and two settings.
    """
    replicas = _replicas(info)
    if not replicas:
        text = f"{address}: it has no replica: while it is away its tags stand still"
        yield Check(
            "replicas",
            "warn",
            text,
            f"redis-cli --cluster add-node NEW:PORT {address} --cluster-slave",
        )
    for replica_address, replica in replicas:
        lag_s = int(replica.get("lag", 0))
        lacks = _bytes_behind(info, replica)
        if replica.get("state", "online") != "online":
            text = f"is not online: {replica['state']}"
        elif lag_s > MOST_LAG_S:
            text = f"is {lag_s} s behind"
        elif lacks > MOST_LAG_BYTES:
            text = f"lacks {lacks / 2**20:.1f} MiB"
        else:
            continue
        repair = "a failover now would lose the rest: see the load and the network of the replica"
        yield Check("replicas", "warn", f"{address}: its replica {replica_address} {text}", repair)
    if settings is None:
        return
    if settings.get(_COVERAGE, "no") != "no":
        text = f"{address}: {_COVERAGE} yes: all primaries refuse requests while one is away"
        yield Check(
            "settings",
            "warn",
            text,
            f"redis-cli CONFIG SET {_COVERAGE} no, and the same in its configuration",
        )
    if int(settings.get(_TIMEOUT, "0")) > MOST_NODE_TIMEOUT_MS:
        text = (
            f"{address}: a replica takes over after {int(settings[_TIMEOUT]) / 1000:g} s at the "
            "soonest"
        )
        yield Check(
            "settings",
            "warn",
            text,
            f"redis-cli CONFIG SET {_TIMEOUT} {MOST_NODE_TIMEOUT_MS}, and in its configuration",
        )
