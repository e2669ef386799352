"""Runs of a server: two runs are told apart, and a replica from the server that it replaces."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A run of a server, as its INFO tells it.

    id: its run id, '' while the server is away.
    history: the id of the server's replication stream.
    before: the id of the stream of the server whose place this server has taken, up to the offset
        `since`.
    up_s: whole seconds since the server's process began.
    at_s: when INFO was read, in monotonic seconds.
    """

    SECTIONS: ClassVar = ("server", "replication")
    """The sections of INFO that `of` reads."""

    id: str = ""
    history: str = ""
    before: str = ""
    since: int = 0
    up_s: int = 0
    at_s: float = field(default_factory=time.monotonic, compare=False)

    @classmethod
    def of(cls, info: Mapping[str, object]) -> ServerRun:
        """Return the run that these sections of INFO describe; missing fields are empty."""
        return cls(
            str(info.get("run_id", "")),
            str(info.get("master_replid", "")),
            str(info.get("master_replid2", "")),
            int(str(info.get("second_repl_offset", 0))),
            int(str(info.get("uptime_in_seconds", 0))),
        )

    def took_over_from(self, earlier: ServerRun) -> bool:
        """Return True if this server was a replica of `earlier`'s server and has taken its place.

        The last writes of the earlier server may be lost then. A server that restarts goes on with
        its own stream too, but its process began after `earlier` was read.
        """
        is_replica = bool(earlier.history) and self.before == earlier.history
        return self.id != earlier.id and is_replica and self.up_s > self.at_s - earlier.at_s
