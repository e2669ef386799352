"""The requests of a client, repeated while no server is reached, and the wait for tasks' ends."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from ..errors import ServerReadOnly, ServerUnreachable
from ..model.ids import decode_id, id_in_shard, new_id
from ..model.limits import MAX_BATCH
from ..model.task import FINAL, Submission, state_word
from ..near import is_near, resolve_near
from ..settings import Settings
from ..store.cluster import join_cluster
from ..store.reads.cancel import CALLS_PER_ROUND_TRIP, cancel_tasks, cancel_words
from ..store.server.connection import BLOCKING, Kit
from ..store.store import Store
from ..submission import split_by_size
from .start_times import StartTimes

T = TypeVar("T")

CLIENT_RETRY_FOR_S: Final = 5.0
"""The time in seconds for which a request is repeated: a server restarts within it."""

_FIRST_RETRY_PAUSE_S: Final = 0.05
_LONGEST_RETRY_PAUSE_S: Final = 1.0

_FIRST_POLL_PAUSE_S: Final = 0.002
_LONGEST_POLL_PAUSE_S: Final = 0.050
_MAX_IDS_SHOWN: Final = 3


class Requests:
    """The store of one cluster, whose requests are repeated for `retry_for_s` seconds.

    Each request checks the server and the cluster's settings first, until one has found the
    settings.
    """

    def __init__(self, settings: Settings, retry_for_s: float, kit: Kit = BLOCKING) -> None:
        self.settings = settings
        self.retry_for_s = retry_for_s
        self.sleep = kit.sleep
        self.store = Store.from_url(
            settings.url, settings.cluster, settings.retention_s, settings.max_starts, kit
        )
        self._start_times = StartTimes(self.store)
        self._joined = self.warned = False

    def do(self, request: Callable[[], T], pauses: Iterator[float] | None = None) -> T:
        """Return the request's answer; repeat the request while no server is reached.

        After each failure the next pause passes.
        """
        pauses = retry_pauses(time.monotonic() + self.retry_for_s) if pauses is None else pauses
        while True:
            try:
                # before its first scheduler a cluster has no settings that could be kept
                if not self._joined:
                    self._joined = join_cluster(self.store, self.settings, create=False) is not None
                return request()
            # a failover, perhaps: a replica becomes primary
            except (ServerUnreachable, ServerReadOnly):
                if (pause_s := next(pauses, None)) is None:
                    raise
            self.sleep(pause_s)

    def make_ids(self, prefix: str = "") -> Callable[[], str]:
        """Return a function that makes the ids of a batch.

        All ids belong to the same shard, so that a batch is a single call. Shards whose server is
        away are left out. prefix: plain text that begins each id.
        """
        shards = self.do(lambda: self.store.keys.shards)
        if shards == 1:
            return (lambda: prefix + new_id()) if prefix else new_id
        live = [
            q for q, key in enumerate(self.store.keys.queues("meta")) if not self.store.is_away(key)
        ]
        return partial(id_in_shard, random.choice(live or range(shards)), shards, prefix)

    def in_batches(
        self,
        ids: Sequence[str],
        request: Callable[[Sequence[str]], Sequence[T]],
        size: int = MAX_BATCH,
    ) -> list[T]:
        """Return the answers for all ids, in their order; `size` ids make one round trip."""
        replies: list[T] = []
        for start in range(0, len(ids), size):
            batch = ids[start : start + size]
            replies += self.do(partial(request, batch))
        return replies

    def submit(
        self,
        tasks: Sequence[Submission],
        pauses: Iterator[float] | None = None,
        apps: Sequence[str] = (),
    ) -> list[str]:
        """Submit tasks; return submit's word for each.

        Repeating is safe, because an id is one task. apps: the stamps of the apps from which the
        tasks were made; () if no app was read.
        """
        words: list[str] = []
        if any(is_near(task.options) for task in tasks):
            tasks = self.do(partial(resolve_near, self.store, tasks), pauses)
        tasks = self._start_times.give(tasks)
        for batch in split_by_size(tasks):
            words += self.do(partial(self._submit, batch, apps), pauses)
        if not self.warned:
            self.warned = True
            from ..inspect.outlook import warn_once  # a client that does not submit does without

            warn_once(self.store)
        return words

    def _submit(self, tasks: Sequence[Submission], apps: Sequence[str]) -> list[str]:
        words = self.store.run(self.store.commands.submit(tasks, apps))
        if "elsewhere" in words:
            self._joined = False
            raise ServerUnreachable(
                f"cluster {self.settings.cluster!r} is being set up: its queue has not "
                f"{self.store.keys.shards} shards"
            )
        return words

    def cancel(self, ids: Sequence[str], how: str = "SIGTERM", why: str = "cancelled") -> list[str]:
        """Cancel tasks by their encoded ids; return one word per task, see `cancel_words`.

        Safe to repeat.

        how: the signal for a task that runs.
        why: the reason for the record of a task that does not run.
        """

        def cancel_batch(batch: Sequence[str]) -> list[str]:
            return cancel_words(cancel_tasks(self.store, batch, why, how))

        return self.in_batches(ids, cancel_batch, CALLS_PER_ROUND_TRIP * MAX_BATCH)

    def revive(self, ids: Sequence[str], who: str = "an operator") -> list[str]:
        """Requeue dead tasks by their encoded ids; return per task `revived` or its state.

        Safe to repeat.
        """
        commands = self.store.commands
        why = f"was dead, and is requeued by {who}"
        words = self.in_batches(ids, lambda batch: self.store.run(commands.revive(batch, why)))
        return [state_word(word) for word in words]


def retry_pauses(deadline_s: float) -> Iterator[float]:
    """Yield growing pauses with jitter, in seconds, until `deadline_s` (monotonic clock)."""
    pause_s = _FIRST_RETRY_PAUSE_S
    while time.monotonic() + pause_s <= deadline_s:
        yield random.uniform(0.5, 1.0) * pause_s
        pause_s = min(2 * pause_s, _LONGEST_RETRY_PAUSE_S)


def wait_until_final(requests: Requests, ids: list[str], timeout: float | None) -> None:
    """Wait until every task is final or gone.

    ids: encoded. timeout: seconds, None for ever. Raises TimeoutError with the number of tasks that
    are not final.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pause_s = _FIRST_POLL_PAUSE_S
    waiting = ids
    while waiting:
        # Only the head is polled: the others cannot end the wait before it does, and most will be
        # final by then.
        head = waiting[:MAX_BATCH]
        tail = waiting[MAX_BATCH:]
        head = _not_final(requests, head)
        waiting = head + tail
        if not head:
            continue
        if deadline is not None and time.monotonic() >= deadline:
            if late := head + _not_final(requests, tail):
                shown = ", ".join(map(decode_id, late[:_MAX_IDS_SHOWN])) + (
                    ", ..." if len(late) > _MAX_IDS_SHOWN else ""
                )
                raise TimeoutError(
                    f"{len(late)} of {len(ids)} tasks are not final after {timeout:g} s: {shown}"
                )
            break
        requests.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_POLL_PAUSE_S)


def _not_final(requests: Requests, ids: list[str]) -> list[str]:
    states = requests.in_batches(ids, requests.store.states)
    return [id for id, state in zip(ids, states, strict=True) if state and state not in FINAL]
