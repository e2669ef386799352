"""The store in memory: the specification of the scripts, and a store without a server.

    store = MemoryStore("demo")
    store.run(store.commands.submit([Submission("a", "work", b"...")]))

The store executes the calls that `Commands` makes, by verb, and answers in the form that each call
reads. The store is deterministic: its clock is `now_ms`, which the caller moves, and `published`
gets the messages that a server would publish. A state machine of
tests/store/model runs each step on the store and on the scripts. lua/verbs has the contract of
each.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from ...errors import BrokenContract
from ...wire.keys import Keys
from .. import Call
from ..scripts.calls import Commands
from .claiming import Claiming
from .cluster import Cluster
from .ending import Ending
from .nodes import Registering
from .running import Running
from .submitting import Submitting

T = TypeVar("T")
_FAMILY: Final = re.compile(r"[^{]*\{[^:}]*:?([^}]*)\}")


class Queue(Submitting, Running, Ending):
    """The tasks of a cluster, and the scripts on them."""


class Partition(Claiming, Registering):
    """The nodes and leases of one partition, and the scripts on them."""


class MemoryStore:
    """The state of one cluster, in memory; answers calls as `Store` does."""

    def __init__(self, cluster: str, shards: int = 1) -> None:
        self.keys = Keys(cluster, shards=shards)
        self.commands = Commands(self.keys)
        self.now_ms = 0
        self.published: list[tuple[str, str]] = []
        self.queues = [Queue(self) for _ in range(shards)]
        self.partitions: dict[int, Partition] = {}
        self.cluster = Cluster(self)
        self._homes: dict[str, Queue | Partition | Cluster] = {"": self.cluster}
        self._homes |= {f"q{shard}": queue for shard, queue in enumerate(self.queues)}

    def run(self, call: Call[T]) -> T:
        """Execute one call and return its answer."""
        if call.parts:
            return call.read(self.run_all(call.parts))
        args = call.script.header.named(
            [arg if isinstance(arg, bytes) else str(arg) for arg in call.args]
        )
        script: Callable[[Sequence[str], Any], Any] | None
        script = getattr(self._home(call.keys[0]), call.script.verb, None)
        if script is None:
            raise BrokenContract(
                f"the store in memory knows no {call.script.verb} on {call.keys[0]}"
            )
        return call.read(script(call.keys, args))

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Execute calls in order and return their answers."""
        return [self.run(call) for call in calls]

    def publish(self, channel: str, text: str) -> int:
        """Record what a server would publish. Returns 0, the number of listeners."""
        self.published.append((channel, text))
        return 0

    def partition(self, number: int) -> Partition:
        """Return a partition, which is empty at first."""
        if number not in self.partitions:
            self.partitions[number] = self._homes[f"p{number}"] = Partition(self)
        return self.partitions[number]

    def _home(self, key: str) -> Queue | Partition | Cluster:
        family = cast(re.Match[str], _FAMILY.match(key))[1]
        return self._homes.get(family) or self.partition(int(family[1:]))
