"""The Python client: submits tasks without the Celery app that defines them, and asks after them."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeVar

from .errors import InvalidInput, ServerReadOnly, ServerUnreachable
from .model.ids import check_name, decode_id, encode_id, shown
from .model.limits import MAX_BATCH
from .model.node import drain_terms
from .model.status import TaskStatus
from .model.task import FINAL, Submission, TaskState
from .model.views import Evenness, NodeView, PartitionView, measure_evenness
from .settings import Settings
from .store.cluster import join_cluster
from .store.store import Store
from .store.tasks import list_tasks
from .store.views import Directory, find_node, read_views
from .submission import Declared, Item, explain_refusal, make_submission, parse_item, split_by_size, with_declared

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How long an unreachable server is asked again: long enough for one that restarts."""

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.050


class ParsyncClient:
    """Submits tasks to a cluster and asks after them. Any thread may use it; close it, or use it in a `with`.

    Its first request checks the server and the cluster's settings. Any request raises ServerUnreachable if no server
    answers for `patience_s` seconds, ServerReadOnly if for so long none takes writes, ServerFull at once, ServerUnfit
    for a server that is too old or evicts keys, ClusterMismatch for settings that differ from the running cluster's,
    InvalidInput for what cannot be.
    """

    def __init__(self, settings: Settings | None = None, patience_s: float = PATIENCE_S) -> None:
        self.settings = settings or Settings.load()
        self.store = Store.from_url(
            self.settings.url, self.settings.cluster, self.settings.retention_s, self.settings.max_starts
        )
        self.patience_s = patience_s
        self._checked = self._looked = False
        self._directory = Directory(self.store)

    @classmethod
    def from_url(cls, url: str, cluster: str = "parsync", **settings: Any) -> "ParsyncClient":
        """A client of the cluster of that name on the server at `url`; connects with its first request."""
        return cls(Settings.load(url=url, cluster=cluster, **settings))

    def check(self) -> None:
        """Checks the server and the cluster's settings, once; every other request does so by itself."""
        self._persist(lambda: None)

    # -- submit ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        countdown: float | None = None,
        expires: Any = None,
        **options: Any,
    ) -> str:
        """Submits one task and returns its id; the same id twice is one task.

        Options that the task's app declares hold where this call says nothing, once a worker that knows it has joined.

        countdown: seconds from now before which it does not start. expires: seconds from now, or a datetime, after
        which it is not started. options: what the task asks for (slots, resources, ...; README has the table), queue
        (only nodes that consume it are candidates), and time_limit, link, headers, ... as in Celery.

        Raises UnknownTask if nodes are registered and none knows the name; Infeasible, naming the largest there is, if
        none could ever hold it. A cluster without nodes accepts any task, which then waits for one.
        """
        when = {"countdown": countdown, "expires": expires}
        item = {"name": name, "args": args, "kwargs": kwargs, "id": id, **when, **options}
        task = self._declared([item], [make_submission(item)])[0]
        if refusal := explain_refusal(self.store, task, self.send([task])[0]):
            raise refusal
        return decode_id(task.id)

    def submit_many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submits tasks, each (name, args, kwargs) or a mapping with the arguments of `submit`; returns their ids.

        One round trip for every 500; an iterator is drawn from as batches are sent, so that millions need no memory
        but for their ids.

        Raises what `submit` raises, naming the first offending task by its index. What was submitted by then: all
        earlier batches; of the batch with the offending task nothing, if it was found bad before sending (arguments,
        options), else all of it that was not refused; nothing after that batch. Submitting the same ids again is safe.
        """
        ids: list[str] = []
        rest = iter(tasks)
        while batch := list(islice(rest, MAX_BATCH)):
            items: list[Item] = []
            for item in batch:
                with _numbered(len(ids) + len(items)):
                    items.append(parse_item(item))
            made: list[Submission] = []
            for item in items:
                with _numbered(len(ids) + len(made)):
                    made.append(make_submission(item))
            made = self._declared(items, made)
            for i, word in enumerate(self.send(made)):
                if refusal := explain_refusal(self.store, made[i], word):
                    raise type(refusal)(f"task {len(ids) + i}: {refusal}")
            ids += [decode_id(task.id) for task in made]
        return ids

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Reads the options that the workers' apps declare for these task names; raises ServerUnreachable.

        pauses: as for `send`.
        """
        return self._persist(lambda: self._directory.declared(names), pauses)

    def _declared(self, items: Sequence[Item], made: Sequence[Submission]) -> list[Submission]:
        """The submissions of some items, made anew where the task's app declares something or is not known yet."""
        declared = self.declared({task.name for task in made})
        return [
            with_declared({**item, "id": decode_id(task.id)}, task, declared)
            if declared.get(task.name, ()) is not None
            else task
            for item, task in zip(items, made, strict=True)
        ]

    def send(self, tasks: Sequence[Submission], pauses: Iterator[float] | None = None) -> list[str]:
        """The word of each task; asked again where no answer came, which is safe because an id is one task.

        pauses: seconds to wait before each further try; the default tries for `patience_s` seconds.
        """
        words: list[str] = []
        for some in split_by_size(tasks):
            words += self._persist(lambda some=some: self.store.run(self.store.commands.submit(some)), pauses)  # type: ignore[misc]
        if not self._looked:
            self._looked = True
            from .inspect.outlook import warn_once  # who only looks does without

            warn_once(self.store)
        return words

    def _persist(self, request: Callable[[], T], pauses: Iterator[float] | None = None) -> T:
        """Returns the request's answer; repeats it while the server cannot be reached, after each of the pauses."""
        pauses = _patience(time.monotonic() + self.patience_s) if pauses is None else pauses
        while True:
            try:
                if not self._checked:
                    join_cluster(self.store, self.settings, create=False)
                    self._checked = True
                return request()
            except (ServerUnreachable, ServerReadOnly):  # a failover, perhaps: a replica becomes primary
                if (pause_s := next(pauses, None)) is None:
                    raise
            time.sleep(pause_s)

    # -- ask ---------------------------------------------------------------------------------------------------------

    def status(self, id: str) -> TaskStatus:
        """What is known of a task: state, node, slot, attempt, times of each step; state `gone` if nothing is."""
        return self.statuses([id])[0]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """What is known of each task, in order; one round trip for every 500."""
        rest = iter([encode_id(id) for id in ids])
        found: list[TaskStatus] = []
        while batch := list(islice(rest, MAX_BATCH)):
            found += self._persist(lambda batch=batch: self.store.statuses(batch))  # type: ignore[misc]
        return found

    def explain(self, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
        """The same tasks; those that wait say in `why` what keeps them now, and who holds what they need.

        `why` of `status` is what a scheduler noted last, which may be old. This reads all nodes, so do not poll it.
        """
        from .inspect.waiting import explain_tasks  # few who submit look at nodes

        return self._persist(lambda: explain_tasks(self.store, tasks))

    def wait(self, ids: Iterable[str], timeout: float | None = None) -> dict[str, TaskStatus]:
        """Waits until every task is final (or gone: nothing is known of it) and returns what is known of each by id.

        timeout: seconds, None for ever. Raises TimeoutError naming how many are not final.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_s = _FIRST_PAUSE_S
        waiting = names
        while waiting:
            # Only the head is polled: the others cannot end the wait before it does, and most will be final by then.
            head, tail = waiting[:MAX_BATCH], waiting[MAX_BATCH:]
            head = self._not_final(head)
            waiting = head + tail
            if not head:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                if late := head + self._not_final(tail):
                    shown = ", ".join(map(decode_id, late[:3])) + (", ..." if len(late) > 3 else "")
                    raise TimeoutError(f"{len(late)} of {len(names)} tasks are not final after {timeout:g} s: {shown}")
                break
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        plain = [decode_id(id) for id in names]
        return dict(zip(plain, self.statuses(plain), strict=True))

    def _not_final(self, ids: list[str]) -> list[str]:
        late: list[str] = []
        for start in range(0, len(ids), MAX_BATCH):
            batch = ids[start : start + MAX_BATCH]
            states = self._persist(lambda batch=batch: self.store.states(batch))  # type: ignore[misc]
            late += [id for id, state in zip(batch, states, strict=True) if state and state not in FINAL]
        return late

    def cancel(self, id: str) -> str:
        """Cancels a task: `cancelled`; `asked` if it runs, so that its node ends it; else the state that it is in.

        That state is succeeded, failed, cancelled, dead or gone: nothing was changed.
        """
        key = encode_id(id)
        word, *state = self._persist(lambda: self.store.run(self.store.commands.cancel(key)))
        return state[0] if word == "none" else word

    # -- dead tasks --------------------------------------------------------------------------------------------------

    def dead(self, limit: int = 100) -> list[TaskStatus]:
        """Dead tasks, the latest first, each with its history; the newest 10,000 are kept until they are requeued."""
        return self._persist(lambda: list_tasks(self.store, {TaskState.DEAD}, limit))

    def requeue_dead(self, ids: Iterable[str]) -> dict[str, str]:
        """Lets dead tasks run again: by id `revived`, or the state that it is in (`gone`: nothing is known of it).

        Its starts are counted anew; its attempts go on. An AsyncResult that has heard of the death hears RETRY.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        words: list[str] = []
        for at in range(0, len(names), MAX_BATCH):
            call = self.store.commands.revive(names[at : at + MAX_BATCH], "was dead, and is requeued by an operator")
            words += self._persist(lambda call=call: self.store.run(call))  # type: ignore[misc]
        return dict(zip(map(decode_id, names), words, strict=True))

    def purge(self, state: str = "waiting", name: str = "*", older_than_s: float = 0.0) -> int:
        """Cancels tasks that wait, or deletes the records of tasks that have ended; says how many.

        state: waiting, succeeded, failed, cancelled or dead. name: a pattern, 'proj.*'. older_than_s: only those that
        were submitted, or have ended, so long ago. A task that is placed or runs is never touched. Raises InvalidInput.
        """
        from .store.purge import find_purgeable, purge_tasks

        found = self._persist(lambda: find_purgeable(self.store, state, name, older_than_s))
        return self._persist(lambda: purge_tasks(self.store, found))

    # -- the cluster -------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        """Every node, by name."""
        views = self._persist(lambda: [node for _, nodes in read_views(self.store) for node in nodes])
        return sorted(views, key=lambda node: node.name)

    def partitions(self) -> list[PartitionView]:
        """Every partition, by number; none before the cluster's first scheduler."""
        return self._persist(lambda: [partition for partition, _ in read_views(self.store)])

    def evenness(self) -> Evenness:
        """How unlike the partitions are in slots, mean score and labels."""
        return measure_evenness(self.partitions())

    def drain(self, node: str, deadline_s: float | None = None, reason: str = "") -> NodeView:
        """Lets no new claim go to a node, also after it restarts; what runs there goes on. Raises InvalidInput.

        deadline_s: after so many seconds, counted by the leader, what still runs there is ended and placed elsewhere;
        these starts count for nothing. reason: a line for people. Asked again, the last word counts.
        """
        return self._set_node(node, "drain", drain_terms(deadline_s, reason))

    def undrain(self, node: str) -> NodeView:
        """Lets claims go to a node again, drained or suspect; raises InvalidInput."""
        return self._set_node(node, "undrain")

    def _set_node(self, name: str, word: str, note: str = "") -> NodeView:
        check_name("node name", name)
        commands = self.store.commands
        partition = self._persist(lambda: find_node(self.store, name))
        reply = ["gone"]
        if partition is not None:
            reply = self._persist(lambda: self.store.run(commands.set_node(partition, name, word, None, note)))
        if reply[0] == "gone":
            known = [node.name for node in self.nodes()]
            there_are = f"there are {', '.join(known[:20])}" if known else "no node is registered"
            raise InvalidInput(f"no node {shown(name)}: {there_are}")
        return next(node for node in self.nodes() if node.name == name)

    # -- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the connections."""
        self.store.client.close()

    def __enter__(self) -> "ParsyncClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _numbered(index: int) -> Iterator[None]:
    """Has an InvalidInput say which of many tasks it is about."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(f"task {index}: {error}") from None


def _patience(deadline_s: float) -> Iterator[float]:
    """Growing pauses with jitter, until a moment of the monotonic clock."""
    pause_s = 0.05
    while time.monotonic() + pause_s <= deadline_s:
        yield random.uniform(0.5, 1.0) * pause_s
        pause_s = min(2 * pause_s, 1.0)
