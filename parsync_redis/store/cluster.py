"""The settings that the processes of a cluster share: the first scheduler writes them, all others
adopt them.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final

from ..errors import ClusterMismatch, DamagedState, ServerFull, ServerReadOnly, ServerUnreachable
from ..settings import Settings
from ..wire.keys import DEFAULT_SHARDS
from .repair.quarantine import quarantine
from .scripts.calls import Call
from .store import Store

SCRIPTS: Final = "9"
"""The version of the keys' and scripts' layout: processes of different layouts must not share a
cluster.
"""

DEFAULT_PARTITIONS: Final = 8
DEFAULT_GAP_S: Final = 0.5
DEFAULT_LEASE_S: Final = 10.0

_NUMBERS: Final = ("partitions", "gap_ms", "lease_ms", "shards")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The shared settings: numbers of partitions and shards; synchronisation gap and lease in
    seconds.

    id: a random text that the first scheduler chose. It is the same by whatever address a process
    reaches the server.
    """

    partitions: int
    gap_s: float
    lease_s: float
    shards: int = DEFAULT_SHARDS
    id: str = ""


def join_cluster(store: Store, settings: Settings, create: bool) -> ClusterConfig | None:
    """Return the settings of the store's cluster; only a scheduler may `create` it.

    None if it was never created and `create` is False. Raises ServerUnreachable or ServerUnfit, and
    ClusterMismatch if a setting was given that differs from the running one.
    """
    store.check_server()
    if create:
        store.load_scripts()
    stored = store.config()
    if not stored and create:
        stored = _create(store, settings)
    if not stored:
        return None
    if differences := find_differences(stored, settings):
        raise ClusterMismatch(
            f"cluster {settings.cluster!r} runs with {', '.join(differences)}: "
            "use the running values, or another cluster name"
        )
    config = _from_text(stored)
    if create:
        _fix_shards(store, config.shards)
    return config


def _create(store: Store, settings: Settings) -> dict[str, str]:
    """Write the settings of a new cluster, unless another process has, and return those that it
    has.

    Clients may have submitted tasks by the usual number of shards, and go on. So if another number
    is wanted, all shards are closed to them before the first shard fixes the number. A scheduler
    that finds them closed does the same again.
    """
    keys = store.keys
    commands = store.commands
    usual = keys.usual_shards
    wanted = settings.shards or usual
    closed = (
        []
        if wanted == usual
        else store.run_all([commands.align(shard, 0, usual) for shard in range(usual)])
    )
    shards = store.run(commands.align(0, max(closed, default=0) or wanted, usual))
    if shards != wanted and settings.shards:
        store.run_all(_fixes(store, shards))  # which opens them
        raise ClusterMismatch(
            f"tasks of cluster {settings.cluster!r} were submitted with shards={shards} (you asked "
            f"for {wanted}): "
            "use this value, or another cluster name"
        )
    config = ClusterConfig(
        settings.partitions or DEFAULT_PARTITIONS,
        settings.gap_s or DEFAULT_GAP_S,
        settings.lease_s or DEFAULT_LEASE_S,
        shards,
        secrets.token_hex(8),
    )
    store.run(commands.configure(_to_text(config)))
    return store.config()


def _fixes(store: Store, shards: int) -> list[Call[int]]:
    """Return calls that let submit refuse tasks of callers that go by another number of shards."""
    most = max(shards, store.keys.usual_shards)
    return [store.commands.align(shard, shards, shards) for shard in range(most)]


def _fix_shards(store: Store, shards: int) -> None:
    """Fix the number of shards; of several servers, not on one that is away: it counts as restarted
    when it is back.
    """
    away = (ServerUnreachable, ServerReadOnly, ServerFull) if store.several else ()
    for answer in store.run_each(_fixes(store, shards)):
        if isinstance(answer, Exception) and not isinstance(answer, away):
            raise answer


def keep_config(store: Store, config: ClusterConfig) -> None:
    """Write the cluster's settings again, if the server has lost them or they are damaged.

    Raises ServerUnreachable.

    A server that is away is left out: it counts as restarted when it is back.
    """
    key = store.keys.shared("config")
    if store.run(store.commands.discard(key, "config")):
        quarantine(store, key, "it was of another type, and was deleted", b"")
    store.run(store.commands.configure(_to_text(config), over=True))
    _fix_shards(store, config.shards)


def find_differences(stored: dict[str, str], settings: Settings) -> list[str]:
    """Return each running value that is not the one asked for: 'partitions=8 (you asked
    for 16)'.
    """
    if stored.get("scripts") != SCRIPTS:
        return [f"scripts of layout {stored.get('scripts')} (this parsync has layout {SCRIPTS})"]
    running = _from_text(stored)
    asked = {name: getattr(settings, name) for name in ("partitions", "shards", "gap_s", "lease_s")}
    return [
        f"{name}={getattr(running, name):g} (you asked for {value:g})"
        for name, value in asked.items()
        if value is not None and round(value * 1000) != round(getattr(running, name) * 1000)
    ]


def _to_text(config: ClusterConfig) -> dict[str, str | int]:
    return {
        "partitions": config.partitions,
        "gap_ms": round(config.gap_s * 1000),
        "lease_ms": round(config.lease_s * 1000),
        "shards": config.shards,
        "scripts": SCRIPTS,
        "id": config.id,
    }


def _from_text(stored: dict[str, str]) -> ClusterConfig:
    try:
        partitions, gap_ms, lease_ms, shards = (int(stored[name]) for name in _NUMBERS)
        if not re.fullmatch("[0-9a-f]{16}", stored["id"]):  # it names a file
            raise ValueError(stored["id"])
        return ClusterConfig(partitions, gap_ms / 1000, lease_ms / 1000, shards, stored["id"])
    except (KeyError, ValueError):
        raise DamagedState(
            f"the cluster's config is damaged: {stored}; it has an id of 16 hexadecimal "
            f"digits, and {', '.join(_NUMBERS)}, whole numbers: "
            "write them anew with redis-cli HSET, as the running schedulers have them"
        ) from None
