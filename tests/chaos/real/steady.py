"""Load at a steady rate on several servers: tasks that one primary cannot take wait, and delay no
others.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

import redis
from redis.exceptions import RedisError

from parsync_redis.errors import ParsyncError
from parsync_redis.store.server.redis_cluster import ClusterClient
from parsync_redis.store.server.slot_map import slot_of
from parsync_redis.store.store import Store

from .clients import WORK, Book, Submitter

AGAIN_S: Final = 0.1
SHORT_S: Final = 0.3
WAIT_MS: Final = 200
"""Milliseconds that the replica may take to have all acknowledged writes."""


class Steady(Submitter):
    """Submits short tasks, `rate` a second; a submit that fails is tried again later, until it is acknowledged.

    patience_s: how long the client itself repeats a submit.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        name: str,
        book: Book,
        rate: float,
        patience_s: float,
        seed: int,
    ) -> None:
        super().__init__(url, cluster, name, book, rate, patience_s, seed)
        # a primary that hangs must not keep a client from submitting to the others
        if not patience_s:
            self._client.store.set_timeouts(SHORT_S)
        self._again: deque[tuple[float, str, float]] = deque()

    def run(self) -> None:
        """Submit until stopped, then submit the failed tasks once more."""
        number = 0
        due_s = time.monotonic()
        while not self._halt.is_set():
            now_s = time.monotonic()
            if self._again and self._again[0][0] <= now_s:
                _, id, seconds = self._again.popleft()
                self._submit(id, seconds)
            elif due_s <= now_s:
                number += 1
                due_s = max(due_s + 1 / self.rate, now_s - 1.0)
                self._submit(f"{self.name}-{number}", round(self._dice.uniform(0.1, 0.4), 2))
            else:
                self._halt.wait(min(due_s - now_s, AGAIN_S))
        for _, id, seconds in [*self._again]:
            self._submit(id, seconds)
        self._client.close()

    def _submit(self, id: str, seconds: float) -> None:
        began_s = time.monotonic()
        try:
            self._client.submit(WORK, id=id, args=[seconds], wait_for_capacity=True)
        except ParsyncError as error:
            self.book.fail(id, error)
            self._again.append((time.monotonic() + AGAIN_S, id, seconds))
            return
        except Exception as error:
            self.broken = error
            raise
        self.acknowledge(id, began_s)


class Marker(threading.Thread):
    """Finds out which acknowledged tasks certainly have a copy: their primary and its replica have them.

    copied: these tasks. Of the other tasks no copy was seen, because they had ended, or their
    primary had no replica.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(name="marker", daemon=True)
        self.ids: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.copied: set[str] = set()
        self._store = store

    def run(self) -> None:
        """Look at each task once, soon after its acknowledgement."""
        last = False
        while not last:
            some = [self.ids.get()]  # limit: `close` waits for this daemon
            while not self.ids.empty():
                some.append(self.ids.get(timeout=0))
            last = None in some
            by_server: dict[str, list[str]] = {}
            client: Any = self._store.client
            assert isinstance(client, ClusterClient)
            for id in some:
                if id is not None:
                    slot = slot_of(self._store.keys.in_shard_of("tasks", id))
                    by_server.setdefault(client.servers.slots.owner(slot), []).append(id)
            for server, ids in by_server.items():
                self._mark(server, ids)
            time.sleep(0.02)

    def _mark(self, server: str, ids: list[str]) -> None:
        """Ask the server itself, on one connection: WAIT is about what this connection has written
        last.
        """
        keys = self._store.keys
        host, _, port = server.rpartition(":")
        try:
            with (
                redis.Redis(host=host, port=int(port), socket_timeout=1.0) as client,
                client.pipeline(False) as pipe,
            ):
                for id in ids:
                    pipe.hexists(keys.in_shard_of("tasks", id), id)
                pipe.set("chaos:" + keys.in_shard_of("tasks", ids[0]), 1)
                pipe.wait(1, WAIT_MS)
                *found, _, replicas = pipe.execute()
        except (RedisError, OSError, ValueError):
            with suppress(ParsyncError):
                self._store.client.servers.discover()  # type: ignore[attr-defined] # it is away, or the slot has moved
            return
        if replicas:
            self.copied |= {id for id, is_there in zip(ids, found, strict=True) if is_there}

    def stop(self) -> None:
        """Look at what is left, and end."""
        self.ids.put(None)
        self.join(timeout=180)
        assert not self.is_alive(), f"{self.name} does not end"
        self._store.disconnect()
