"""The server's memory for a task that waits, runs or has ended."""

import threading
from typing import Any, Final

from parsync_lab import Stopped
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store

from .cost_life import COST_CASES, COST_NODE_SLOTS, MESSAGE, VERBS, Life
from .placement import Say, facts_of

VERBS_BY_STATE: Final = {
    "waiting": ("submit",),
    "running": ("take", "commit", "start"),
    "ended": ("finish", "release"),
}
"""{measured state of a task: the verbs that lead to it}."""


def run_memory(tasks: int, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Return the memory of `tasks` tasks for each case: bytes per task, and MB in all.

    Raises Stopped.
    """
    with EmbeddedServer() as server:
        memory: dict[str, dict[str, dict[str, float]]] = {}
        for name, case in COST_CASES.items():
            store = Store.from_url(server.url, f"memory-{name}")
            life = Life(store, case, nodes=-(-tasks // COST_NODE_SLOTS))
            life.begin(MAX_BATCH)
            for verb in VERBS:
                life.step(verb, MAX_BATCH)  # the server's buffers have grown
            before = _used(store)
            life.begin(tasks)
            memory[name] = {}
            for state, verbs in VERBS_BY_STATE.items():
                for verb in verbs:
                    if stop.is_set():
                        raise Stopped
                    say(f"{name}: {verb}")
                    life.step(verb, MAX_BATCH)
                used = _used(store) - before
                memory[name][state] = {"bytes": round(used / tasks, 1), "mb": round(used / 1e6, 1)}
        return {
            "tasks": tasks,
            "message_bytes": len(MESSAGE),
            "memory": memory,
            "facts": facts_of(server),
        }


def _used(store: Store) -> int:
    return int(store.client.info("memory")["used_memory"])
