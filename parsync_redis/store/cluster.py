"""The settings that the processes of a cluster share: the first scheduler writes them, all others adopt them."""

from dataclasses import dataclass
from typing import Final

from ..errors import ClusterMismatch, DamagedState
from ..settings import Settings
from .store import Store

SCRIPTS: Final = "5"
"""The version of the keys' and scripts' layout: processes of different layouts must not share a cluster."""

DEFAULT_PARTITIONS: Final = 8
DEFAULT_GAP_S: Final = 0.5
DEFAULT_LEASE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The shared settings: number of partitions, synchronisation gap and lease in seconds."""

    partitions: int
    gap_s: float
    lease_s: float


def join_cluster(store: Store, settings: Settings, create: bool) -> ClusterConfig | None:
    """Return the settings of the store's cluster; only a scheduler may `create` it.

    None if it was never created and `create` is False. Raises ServerUnreachable or ServerUnfit, and ClusterMismatch if
    a setting was given that differs from the running one.
    """
    store.check_server()
    wanted = ClusterConfig(
        settings.partitions or DEFAULT_PARTITIONS, settings.gap_s or DEFAULT_GAP_S, settings.lease_s or DEFAULT_LEASE_S
    )
    if create:
        store.load_scripts()
    stored = store.run(store.commands.configure(_to_text(wanted))) if create else store.config()
    if not stored:
        return None
    if differences := find_differences(stored, settings):
        raise ClusterMismatch(
            f"cluster {settings.cluster!r} runs with {', '.join(differences)}: "
            "use the running values, or another cluster name"
        )
    return _from_text(stored)


def keep_config(store: Store, config: ClusterConfig) -> None:
    """Write the cluster's settings again, if the server has lost them. Raises ServerUnreachable."""
    store.run(store.commands.configure(_to_text(config)))


def find_differences(stored: dict[str, str], settings: Settings) -> list[str]:
    """Return each running value that is not the one asked for: 'partitions=8 (you asked for 16)'."""
    if stored.get("scripts") != SCRIPTS:
        return [f"scripts of layout {stored.get('scripts')} (this parsync has layout {SCRIPTS})"]
    running = _from_text(stored)
    asked = {"partitions": settings.partitions, "gap_s": settings.gap_s, "lease_s": settings.lease_s}
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
        "scripts": SCRIPTS,
    }


def _from_text(stored: dict[str, str]) -> ClusterConfig:
    try:
        return ClusterConfig(int(stored["partitions"]), int(stored["gap_ms"]) / 1000, int(stored["lease_ms"]) / 1000)
    except (KeyError, ValueError):
        raise DamagedState(
            f"the cluster's config is damaged: {stored}; it has partitions, gap_ms and lease_ms, whole numbers: "
            "write them anew with redis-cli HSET, as the running schedulers have them"
        ) from None
