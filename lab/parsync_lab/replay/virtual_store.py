"""The store in memory, extended by the plain reads of a scheduler's plans, in virtual time."""

import re
from collections.abc import Sequence
from typing import Any, Final

from parsync_redis.model.text import NODE_LINE
from parsync_redis.store.reference.leases import NodeRecord
from parsync_redis.store.reference.store import MemoryStore

_PARTITION: Final = re.compile(r"[^{]*\{[^:}]*:p(\d+)\}:(\w+)(?::(.*))?")
_NAMES_KEY: Final = re.compile(r"[^{]*\{[^:}]*:q(\d+)\}:names")


class VirtualStore(MemoryStore):
    """A store with the clock `now_ms`, for code that expects a `Store` of one server."""

    several = False

    def publish(self, channel: str, text: str) -> int:
        """Record a message. Returns 1: the scheduler of the channel hears it."""
        super().publish(channel, text)
        return 1

    def pipe_each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Answer plain commands as a server does: reads of nodes and names, deletes of inboxes."""
        return [self._answer(*command) for command in commands]

    def _answer(self, command: str, key: str, *args: Any) -> Any:
        if command == "hmget" and (match := _NAMES_KEY.fullmatch(key)):
            names = self.queues[int(match[1])].names
            return [names[digest].text.encode() if digest in names else None for digest in args[0]]
        match = _PARTITION.fullmatch(key)
        if match is None:
            raise KeyError(f"the virtual store has no {command} {key}")
        partition = self.partition(int(match[1]))
        kind = match[2]
        if (command, kind) == ("hget", "meta") and args == ("epoch",):
            return str(partition.epoch).encode()
        if (command, kind) == ("hgetall", "nodes"):
            return {name.encode(): _record(node).encode() for name, node in partition.nodes.items()}
        if (command, kind) == ("delete", "inbox"):
            partition.nodes[match[3]].inbox.clear()
            return 1
        raise KeyError(f"the virtual store has no {command} {key}")


def _record(node: NodeRecord) -> str:
    """Return the record of a node as Redis has it."""
    return NODE_LINE.write(
        inc=node.inc,
        state=node.state,
        drain=node.drain,
        first=node.first,
        span=node.span,
        ahead=node.ahead,
        score=node.score,
        offer=node.offer.text,
    )
