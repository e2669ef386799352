"""What tells one run of a server from another, and whether a replica has taken a server's place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A run of a server, as its INFO tells it.

    id: its run id, '' while the server is away. history: the id of its replication stream; before:
    that of the server whose place it has taken, since the offset `since`. up_s: whole seconds since
    its process began. at_s: when this was read, in monotonic seconds.
    """

    SECTIONS: ClassVar = ("server", "replication")
    """The sections of INFO that tell it."""

    id: str = ""
    history: str = ""
    before: str = ""
    since: int = 0
    up_s: int = 0
    at_s: float = field(default_factory=time.monotonic, compare=False)

    @classmethod
    def of(cls, info: Mapping[str, object]) -> ServerRun:
        """Return the run that these sections of INFO describe; fields that are missing
        are empty.
        """
        return cls(
            str(info.get("run_id", "")),
            str(info.get("master_replid", "")),
            str(info.get("master_replid2", "")),
            int(str(info.get("second_repl_offset", 0))),
            int(str(info.get("uptime_in_seconds", 0))),
        )

    def took_over_from(self, other: ServerRun) -> bool:
        """Return True if this server was a replica of that one and goes on in its place: its last
        writes may be lost.

        A server that restarts goes on with its own stream too, but its process is younger than the
        last look.
        """
        is_replica = bool(other.history) and self.before == other.history
        return self.id != other.id and is_replica and self.up_s > self.at_s - other.at_s
