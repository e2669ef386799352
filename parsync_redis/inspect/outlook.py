"""The warning that tasks of a cluster cannot be placed.

Without the warning, a process that submits would wait in silence.
"""

import logging
from typing import Any, Final

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..model.ids import readable
from ..model.node import NodeState
from ..store.reads.schedulers import (
    find_fault,
    judge_silence,
    lease_of,
    read_refusals,
    read_schedulers,
)
from ..store.reads.views import partitions_of, read_live_nodes
from ..store.store import Store

log = logging.getLogger("parsync.client")

START_NODE: Final = "start a worker of your app with --parsync"


def find_missing(store: Store) -> str:
    """Return why tasks cannot be placed, with the commands that repair that; '' if they can.

    While a scheduler lives and a slot is free, no server is asked whether it takes writes.
    """
    if _all_is_well(store):
        return ""
    refusals = read_refusals(store)
    fault = find_fault(store, read_schedulers(store), refusals)
    further_refusals = [str(refusal) for refusal in refusals if refusal is not fault]
    return "; and ".join(filter(None, (str(fault or ""), *further_refusals, _no_node(store))))


def _all_is_well(store: Store) -> bool:
    """Return whether a scheduler is surely alive and a slot surely free, in two round trips."""
    keys = store.keys
    members, config = store.pipe(
        [("hgetall", keys.shared("schedulers")), ("hgetall", keys.shared("config"))]
    )
    config_fields = {readable(name): readable(value) for name, value in config.items()}
    partitions = partitions_of(config_fields)
    stats = [("pttl", keys.stats(readable(name))) for name in members]
    free = [("hmget", keys.partition(number, "meta"), ["free"]) for number in range(partitions)]
    replies: list[Any] = store.pipe([*stats, *free]) if stats and free else []
    alive = any(
        judge_silence(int(left_ms), lease_of(config_fields))[1] for left_ms in replies[: len(stats)]
    )
    return alive and any(count not in (None, b"0") for (count,) in replies[len(stats) :])


def _no_node(store: Store) -> str:
    """Return why no node takes tasks; '' if one does."""
    nodes = [state.node for states in read_live_nodes(store) for state in states]
    if not nodes:
        return f"it has no node: {START_NODE}"
    if any(node.state_shown == NodeState.UP for node in nodes):
        return ""
    states = [(node.state_shown.value, node.name) for node in nodes]
    named = ", ".join(f"{name} ({state})" for state, name in sorted(states)[:4])
    unnamed = f" and {len(states) - 4} more" if len(states) > 4 else ""
    remedy = f"parsync nodes undrain NODE, or {START_NODE}"
    return f"none of its nodes takes tasks: {named}{unnamed}: {remedy}"


_checked_clusters: set[tuple[str, str]] = set()
"""(address, cluster) of each cluster that this process has submitted to."""


def warn_once(store: Store) -> None:
    """Warn if nothing can place tasks, at this process's first submit into a cluster.

    Never raises.
    """
    cluster = (store.address, store.keys.cluster)
    if cluster in _checked_clusters:
        return
    _checked_clusters.add(cluster)
    try:
        missing = find_missing(store)
    except (ParsyncError, RedisError, OSError) as error:
        log.info(
            "whether tasks of cluster %r can be placed is not known: %s", store.keys.cluster, error
        )
        return
    if missing:
        log.warning("tasks of cluster %r wait: %s", store.keys.cluster, missing)
