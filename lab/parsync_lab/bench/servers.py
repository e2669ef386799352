"""The servers of a bench: one without a cluster, or the primaries of a Redis Cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers of a bench, and the address by which parsync finds them."""

    url: str
    all: Sequence[EmbeddedServer]


@contextmanager
def start_servers(
    primaries: int,
    program: str | None = None,
    options: Mapping[str, object] | None = None,
    launchers: Sequence[Sequence[str]] = (),
    aof: bool = False,
) -> Iterator[Servers]:
    """Start the servers, and stop them at the end.

    launchers: for each server the words before its program.
    """
    if primaries == 1:
        with EmbeddedServer(
            program, aof=aof, options=options, launcher=launchers[0] if launchers else ()
        ) as server:
            yield Servers(server.url, [server])
        return
    with EmbeddedCluster(
        primaries, program=program, aof=aof, options=options, launchers=launchers
    ) as cluster:
        yield Servers(cluster.url, cluster.servers)
