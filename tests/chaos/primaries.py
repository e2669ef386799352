"""The primaries of a schedule: which of them has which key, which are away, and the run id of each.

All keys are on one real server; only the outages and the owners of keys are played. A server
without a cluster is a single primary.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

from parsync_redis.wire.keys import Keys

from .processes import PARTITIONS
from .wire import CLUSTER

NAMES: Final = ("A", "B", "C")
_TAG: Final = re.compile(r"\{[^:}]*:?([^}]*)\}")


def tag_of(key: str | bytes) -> str:
    """Return the part of the state that a key belongs to: 'q0', 'p1', or '' for the cluster as a
    whole.
    """
    found = _TAG.search(key.decode() if isinstance(key, bytes) else key)
    return found[1] if found else ""


class Primaries:
    """The primaries of one schedule.

    names: the names of the primaries; a single name for a server without a cluster.
    """

    def __init__(self, seed: int, shards: int) -> None:
        rng = Random(f"primaries {seed}")
        self.several = shards > 1
        self.keys = Keys(CLUSTER, shards=shards)
        self.names = NAMES[: rng.choice((2, 3))] if self.several else NAMES[:1]
        self.tags = [
            "",
            *(f"q{shard}" for shard in range(shards)),
            *(f"p{p}" for p in range(PARTITIONS)),
        ]
        dealt = rng.sample(self.tags, len(self.tags))
        self.owners = {tag: self.names[n % len(self.names)] for n, tag in enumerate(dealt)}
        self.run_ids = {name: f"run1{name}" for name in self.names}
        self.away_until_s: dict[str, float] = {}
        self.restarted_s = dict.fromkeys(self.names, float("-inf"))
        self.rolled_back: set[str] = set()  # tags of which acknowledged writes were lost

    def of(self, key: str | bytes) -> str:
        """Return the primary of a key."""
        return self.owners[tag_of(key)]

    def is_away(self, name: str, now_s: float) -> bool:
        """Return True while a primary does not answer."""
        return now_s < self.away_until_s.get(name, 0.0)

    def end_outages(self, now_s: float) -> None:
        """Let all primaries answer from now on."""
        self.away_until_s.clear()
        self.restarted_s = {name: min(now_s, at_s) for name, at_s in self.restarted_s.items()}

    def restart(self, name: str, now_s: float, run_id: str) -> None:
        """Let another run of a primary begin."""
        self.run_ids[name] = run_id
        self.restarted_s[name] = now_s

    def tags_of(self, name: str) -> set[str]:
        """Return what a primary has."""
        return {tag for tag, owner in self.owners.items() if owner == name}

    def run_of(self, tag: str) -> str:
        """Return the run id of the primary of a tag."""
        return self.run_ids[self.owners[tag]]
