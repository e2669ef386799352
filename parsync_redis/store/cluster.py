"""The settings that all processes of a cluster share.

The first scheduler writes the settings, and all other processes adopt them.
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

LAYOUT_VERSION: Final = "10"
"""Version of the layout of keys and scripts: a cluster's processes must have the same."""

DEFAULT_PARTITIONS: Final = 8
DEFAULT_GAP_S: Final = 0.5
DEFAULT_LEASE_S: Final = 10.0

_NUMBER_SETTINGS: Final = ("partitions", "gap_ms", "lease_ms", "shards")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The shared settings.

    partitions, shards: numbers.
    gap_s: synchronisation gap in seconds.
    lease_s: lease in seconds.
    id: 16 hexadecimal digits that the first scheduler drew. The id is the same by whatever address
        a process reaches the server.
    """

    partitions: int
    gap_s: float
    lease_s: float
    shards: int = DEFAULT_SHARDS
    id: str = ""


def join_cluster(store: Store, settings: Settings, create: bool) -> ClusterConfig | None:
    """Return the settings of the store's cluster.

    create: create the cluster if it does not exist; only a scheduler may do that. Without `create`,
    returns None for a cluster that was never created. Raises ServerUnreachable or ServerUnfit, and
    ClusterMismatch if a given setting differs from the running one.
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


def read_config(store: Store) -> ClusterConfig | None:
    """Return the settings of the cluster as they are stored, None if it does not exist.

    Raises ServerUnreachable.
    """
    stored = store.config()
    return _from_text(stored) if stored else None


def _create(store: Store, settings: Settings) -> dict[str, str]:
    """Write the settings of a new cluster unless they exist; return the settings that exist then.

    Clients may have submitted tasks by the usual number of shards, and may go on to do so. So if
    another number is asked for, all shards are closed to clients before the first shard fixes the
    number. If this scheduler dies meanwhile, the next scheduler finds the shards closed, and fixes
    the number.
    """
    keys = store.keys
    commands = store.commands
    usual = keys.usual_shards
    shards_asked = settings.shards or usual
    fixed_before = 0
    if shards_asked != usual:
        closings = [commands.fix_shards(shard, 0, usual) for shard in range(usual)]
        fixed_before = max(store.run_all(closings))
    shards = store.run(commands.fix_shards(0, fixed_before or shards_asked, usual))
    if shards != shards_asked and settings.shards:
        store.run_all(_fixes(store, shards))  # opens the shards
        raise ClusterMismatch(
            f"tasks of cluster {settings.cluster!r} were submitted with shards={shards} (you asked "
            f"for {shards_asked}): use this value, or another cluster name"
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
    """Return calls after which submit refuses tasks of clients with another number of shards."""
    highest_count = max(shards, store.keys.usual_shards)
    return [store.commands.fix_shards(shard, shards, shards) for shard in range(highest_count)]


def _fix_shards(store: Store, shards: int) -> None:
    """Fix the number of shards on each server.

    Of several servers, a server that is away is left out. When that server is back it counts as
    restarted, and gets the number then.
    """
    away = (ServerUnreachable, ServerReadOnly, ServerFull) if store.several else ()
    for answer in store.run_each(_fixes(store, shards)):
        if isinstance(answer, Exception) and not isinstance(answer, away):
            raise answer


def keep_config(store: Store, config: ClusterConfig) -> None:
    """Write the cluster's settings again, if the server has lost them or they are damaged.

    A server that is away is left out, and counts as restarted when it is back. Raises
    ServerUnreachable.
    """
    key = store.keys.shared("config")
    if store.run(store.commands.discard(key, "config")):
        quarantine(store, key, "it was of another type, and was deleted", b"")
    store.run(store.commands.configure(_to_text(config), over=True))
    _fix_shards(store, config.shards)


def find_differences(stored: dict[str, str], settings: Settings) -> list[str]:
    """Return running values that differ from given ones: 'partitions=8 (you asked for 16)'."""
    if stored.get("scripts") != LAYOUT_VERSION:
        return [
            f"scripts of layout {stored.get('scripts')} (this parsync has layout {LAYOUT_VERSION})"
        ]
    running = _from_text(stored)
    settings_asked = {
        name: getattr(settings, name) for name in ("partitions", "shards", "gap_s", "lease_s")
    }
    return [
        f"{name}={getattr(running, name):g} (you asked for {value:g})"
        for name, value in settings_asked.items()
        if value is not None and round(value * 1000) != round(getattr(running, name) * 1000)
    ]


def _to_text(config: ClusterConfig) -> dict[str, str | int]:
    return {
        "partitions": config.partitions,
        "gap_ms": round(config.gap_s * 1000),
        "lease_ms": round(config.lease_s * 1000),
        "shards": config.shards,
        "scripts": LAYOUT_VERSION,
        "id": config.id,
    }


def _from_text(stored: dict[str, str]) -> ClusterConfig:
    try:
        partitions, gap_ms, lease_ms, shards = (int(stored[name]) for name in _NUMBER_SETTINGS)
        if not re.fullmatch("[0-9a-f]{16}", stored["id"]):  # The id becomes the name of a file.
            raise ValueError(stored["id"])
        return ClusterConfig(partitions, gap_ms / 1000, lease_ms / 1000, shards, stored["id"])
    except (KeyError, ValueError):
        raise DamagedState(
            f"the cluster's config is damaged: {stored}; it has an id of 16 hexadecimal "
            f"digits, and {', '.join(_NUMBER_SETTINGS)}, whole numbers: "
            "write them anew with redis-cli HSET, as the running schedulers have them"
        ) from None
