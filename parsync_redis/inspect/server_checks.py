"""The judgements of `parsync doctor` on one server, by its INFO and its settings. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..store.server.server_info import LIST_SETTINGS

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: its subject (name), its level, what was seen (text), and the repair."""

    name: str
    level: Level
    text: str
    repair: str = ""


def judge_memory(info: Mapping[str, Any]) -> Check:
    """Warn above 80 % of maxmemory: with noeviction, writes fail at 100 %."""
    used = int(info.get("used_memory", 0))
    limit = int(info.get("maxmemory", 0))
    text = f"{used / 2**20:.0f} MiB used" + (
        f" of {limit / 2**20:.0f} MiB" if limit else ", no limit set"
    )
    if limit and used > 0.8 * limit:
        return Check(
            "memory",
            "warn",
            text,
            "raise maxmemory, or lower retention_s: a full server refuses tasks",
        )
    return Check("memory", "ok", text)


def judge_allocator(info: Mapping[str, Any]) -> Check:
    """Name the allocator. libc's is no fault, but slower.

    The server does not say whether another allocator is preloaded.
    """
    name = str(info.get("mem_allocator", "unknown"))
    if name != "libc":
        return Check("allocator", "ok", name)
    text = (
        "libc, unless another one is preloaded; jemalloc takes a tenth less CPU "
        "(LD_PRELOAD=libjemalloc.so.2)"
    )
    return Check("allocator", "ok", text)


def judge_lists(settings: Mapping[str, str] | None) -> Check:
    """Warn if the server keeps sets and hashes as lists beyond the size that pays."""
    right_settings = " ".join(f"{name} {most}" for name, most in LIST_SETTINGS.items())
    if settings is None:
        return Check(
            "lists",
            "ok",
            f"the server does not tell this login its settings; {right_settings} save CPU "
            "(redis-cli CONFIG GET)",
        )
    list_settings = {name: settings[name] for name in LIST_SETTINGS if name in settings}
    text = (
        ", ".join(f"{name} {value}" for name, value in list_settings.items())
        or "the server has no such settings"
    )
    if any(int(value) > LIST_SETTINGS[name] for name, value in list_settings.items()):
        repair = (
            f"redis-cli CONFIG SET {right_settings}, and the same in its configuration: "
            "a twentieth less CPU"
        )
        return Check("lists", "warn", text, repair)
    return Check("lists", "ok", text)


def judge_persistence(info: Mapping[str, Any], settings: Mapping[str, str] | None) -> Check:
    """Judge what a crash of the server loses.

    Passes with AOF. Warns with RDB alone, which loses minutes, or without both. Fails after a
    failed write.
    """
    save = None if settings is None else settings.get("save", "")
    aof = bool(int(info.get("aof_enabled", 0)))
    for field, on in (("aof_last_write_status", aof), ("rdb_last_bgsave_status", True)):
        if on and str(info.get(field, "ok")) != "ok":
            return Check(
                "persistence",
                "fail",
                f"{field} is {info[field]}",
                "see the server's log: disk full?",
            )
    if aof:
        return Check(
            "persistence",
            "ok",
            "AOF on; a crash may lose what appendfsync allows (everysec: one second)",
        )
    repair = "redis-cli CONFIG SET appendonly yes"
    if save:
        return Check(
            "persistence",
            "warn",
            f"only RDB (save {save}): a crash loses the tasks since the last save",
            repair,
        )
    if save is None:
        return Check(
            "persistence", "warn", "no AOF; whether RDB is on the server does not tell", repair
        )
    return Check("persistence", "warn", "off: a restart of the server loses all tasks", repair)


def judge_role(info: Mapping[str, Any]) -> Check:
    """Fail if the server is a replica: it refuses writes."""
    if str(info.get("role", "master")) != "master":
        return Check(
            "role",
            "fail",
            "the server is a replica and refuses writes",
            "use the primary's address",
        )
    return Check("role", "ok", f"primary with {info.get('connected_slaves', 0)} replicas")
