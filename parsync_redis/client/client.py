"""ParsyncClient."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from ..errors import InvalidInput
from ..model.human import needs_given
from ..model.ids import check_name, decode_id, encode_id, shown
from ..model.node import drain_terms
from ..model.status import TaskStatus
from ..model.task import Submission, TaskState
from ..model.views import Evenness, KindView, NameView, NodeView, PartitionView, measure_evenness
from ..settings import Settings
from ..store.reads.cancel import Selection, find_selected
from ..store.reads.demand import read_demand
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.tasks import list_tasks
from ..store.reads.times import read_names
from ..store.reads.views import find_node, read_node_views, read_views
from ..store.server.connection import BLOCKING
from ..submission import Declared, Item, SubmitOptions
from .asking import Asking
from .requests import CLIENT_RETRY_FOR_S, Requests
from .submitter import Submitter
from .waiting import wait_until_final


class ParsyncClient(Asking):
    """Submits tasks to a cluster and asks for their state.

    Any thread may use it; close it, or use it in a `with`.

    Its first request checks the server and the cluster's settings. Every request may raise:
    ServerUnreachable, if no server answers for `retry_for_s` seconds; ServerReadOnly, if none takes
    writes for so long; ServerFull, at once; ServerUnfit, for a server that is too old or evicts
    keys; ClusterMismatch, for settings that differ from the running cluster's; InvalidInput, for a
    wrong argument.
    """

    _kit = BLOCKING

    def __init__(
        self, settings: Settings | None = None, retry_for_s: float = CLIENT_RETRY_FOR_S
    ) -> None:
        self.requests = Requests(settings or Settings.load(), retry_for_s, self._kit)
        self.settings = self.requests.settings
        self.store = self.requests.store
        self._submitter = Submitter(self.requests)

    @classmethod
    def from_url(cls, url: str, cluster: str = "parsync", **settings: Any) -> "ParsyncClient":
        """Return a client of `cluster` on the server at `url`; it connects at first use.

        settings: as of Settings.
        """
        return cls(Settings.load(url=url, cluster=cluster, **settings))

    def check(self) -> None:
        """Check the server and the cluster's settings, once; every other request does
        so by itself.
        """
        self.requests.do(lambda: None)

    # -- submit ------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        countdown: float | None = None,
        expires: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit one task and return its id; the same `id` twice is one task.

        Options that the task's app declares apply if the call does not set them, once a worker that
        knows the task has joined.

        name, args, kwargs: the task's name and arguments. countdown: seconds from now before which
        it does not start. expires: seconds from now, or a datetime, after which it is not started.
        options: what the task asks for (slots, resources, ...; docs/options.md has the table),
        queue (only nodes that consume it are candidates), and time_limit, link, headers, ... as in
        Celery.

        Raises UnknownTask if nodes are registered and none knows the name; Infeasible, naming the
        largest there is, if none could ever hold it. A cluster without nodes accepts any task,
        which then waits for one.
        """
        when = {"countdown": countdown, "expires": expires}
        return self._submitter.one(
            {"name": name, "args": args, "kwargs": kwargs, "id": id, **when, **options}
        )

    def submit_many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submit tasks, each (name, args, kwargs) or a mapping with the arguments of `submit`;
        return their ids.

        One round trip for every 500. An iterator is drawn from as batches are sent, so that
        millions of tasks need no memory but for their ids.

        Raises what `submit` raises, naming the first offending task by its index. By then these
        were submitted: all earlier batches; of the batch with the offending task nothing, if it was
        found before sending (arguments, options), else all of it that was not refused; nothing
        after that batch. Submitting the same ids again is safe.
        """
        return self._submitter.many(tasks)

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Return the options that the workers' apps declare for these task names.

        pauses: as for `send`.
        """
        return self._submitter.declared(names, pauses)

    def send(self, tasks: Sequence[Submission], pauses: Iterator[float] | None = None) -> list[str]:
        """Submit tasks that are made; return submit's word for each.

        pauses: seconds to wait before each further try; the default tries for `retry_for_s`
        seconds.
        """
        return self.requests.submit(tasks, pauses)

    # -- ask ---------------------------------------------------------------------------------------

    def status(self, id: str) -> TaskStatus:
        """Return what is known of the task `id`: state, place, attempt, time of each step; state
        `gone` if nothing.
        """
        return self.statuses([id])[0]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return what is known of the tasks `ids`, in their order; one round trip for every 500."""
        return self.requests.in_batches([encode_id(id) for id in ids], self.store.statuses)

    def wait(self, ids: Iterable[str], timeout: float | None = None) -> dict[str, TaskStatus]:
        """Wait until all `ids` are final, or gone because the server has no record of them; return
        a status per id.

        timeout: seconds, None for ever. Raises a TimeoutError after it, which says how many are not
        final.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        wait_until_final(self.requests, names, timeout)
        plain = [decode_id(id) for id in names]
        return dict(zip(plain, self.statuses(plain), strict=True))

    def cancel(self, id: str) -> str:
        """Cancel the task `id`; return `cancelled`, `asked` if it runs (its node ends it), or the
        state that it is in.

        That state is succeeded, failed, cancelled, dead or gone: nothing was changed.
        """
        (word,) = self.cancel_many([id]).values()
        return word

    def cancel_many(self, ids: Iterable[str]) -> dict[str, str]:
        """Cancel the tasks `ids`, 500 in a call; return by id what `cancel` returns."""
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        return dict(zip(map(decode_id, names), self.requests.cancel(names), strict=True))

    def cancel_where(
        self, kind: str | None = None, name: str = "*", state: str = "waiting"
    ) -> dict[str, int]:
        """Cancel all tasks of a kind, of some names and in a state; return how many by word,
        {"cancelled": 100000}.

        kind: as `demand` has it, None for any. name: a pattern, 'proj.*'. state: waiting, placed,
        or running: these are asked to end (`asked`). A task that gets further meanwhile, or ends,
        is left alone: then the word is its state. One that is submitted meanwhile may be left out.
        Raises InvalidInput, and AccessDenied if this login may not list tasks.
        """
        chosen = Selection(state, name, kind and needs_given(kind))
        tasks = self.requests.do(lambda: find_selected(self.store, chosen))
        return dict(Counter(self.requests.cancel(tasks, chosen.how)))

    def demand(self) -> list[KindView]:
        """Return the kinds of which tasks wait, in the order in which schedulers take them; one
        read.

        Tasks that are not due yet do not count. A line that is damaged is left out; a warning in
        the log says so.
        """
        return self.requests.do(lambda: read_demand(self.store))

    def names(self) -> list[NameView]:
        """Return how long the tasks of each name run, by name."""
        return self.requests.do(lambda: read_names(self.store))

    # -- dead tasks --------------------------------------------------------------------------------

    def dead(self, limit: int = 100) -> list[TaskStatus]:
        """Return the newest `limit` dead tasks, each with its history; 10,000 are kept until they
        are requeued.
        """
        return self.requests.do(lambda: list_tasks(self.store, {TaskState.DEAD}, limit))

    def requeue_dead(self, ids: Iterable[str]) -> dict[str, str]:
        """Let the dead tasks `ids` run again; return by id `revived`, or its state (`gone`: nothing
        is known of it).

        Its starts are counted from 0 again; its attempts go on. An AsyncResult that got the death
        gets RETRY.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        return dict(zip(map(decode_id, names), self.requests.revive(names), strict=True))

    def purge(self, state: str = "waiting", name: str = "*", older_than_s: float = 0.0) -> int:
        """Cancel tasks that wait, or delete the records of tasks that have ended; return how many.

        state: waiting, succeeded, failed, cancelled or dead. name: a pattern, 'proj.*'.
        older_than_s: only those that were submitted, or have ended, so long ago. A task that is
        placed or runs is never touched. Raises InvalidInput.
        """
        from ..store.reads.purge import find_purgeable, purge_tasks

        tasks = self.requests.do(lambda: find_purgeable(self.store, state, name, older_than_s))
        return self.requests.do(lambda: purge_tasks(self.store, tasks))

    # -- the cluster -------------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        """Return every node, by name."""
        return self.requests.do(lambda: read_node_views(self.store))

    def partitions(self) -> list[PartitionView]:
        """Return every partition, by number; none before the cluster's first scheduler."""
        return self.requests.do(lambda: [partition for partition, _ in read_views(self.store)])

    def evenness(self) -> Evenness:
        """Return how much the partitions differ in slots, mean score and labels."""
        return measure_evenness(self.partitions())

    def drain(self, node: str, deadline_s: float | None = None, reason: str = "") -> NodeView:
        """Let no new claim go to a node, also after it restarts; its runs go on.

        Raises InvalidInput.

        deadline_s: after so many seconds, counted by the leader, what still runs there is ended and
        placed elsewhere; these starts do not count. reason: a line for people. A second call
        replaces the terms of the first.
        """
        return self._set_node(node, "drain", drain_terms(deadline_s, reason))

    def undrain(self, node: str) -> NodeView:
        """Let claims go to a drained or suspect node again; raises InvalidInput."""
        return self._set_node(node, "undrain")

    def _set_node(self, name: str, word: str, note: str = "") -> NodeView:
        check_name("node name", name)
        commands = self.store.commands
        partition = self.requests.do(lambda: find_node(self.store, name))
        reply = ["gone"]
        if partition is not None:
            reply = self.requests.do(
                lambda: self.store.run(commands.set_node(partition, name, word, None, note))
            )
        if reply[0] == "gone":
            names = [node.name for node in self.nodes()]
            missing = None if names else self.requests.do(lambda: look_for_cluster(self.store))
            there_are = (
                f"there are {', '.join(names[:20])}"
                if names
                else str(missing or "no node is registered")
            )
            raise InvalidInput(f"no node {shown(name)}: {there_are}")
        return next(node for node in self.nodes() if node.name == name)

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections."""
        self.store.client.close()

    def __enter__(self) -> "ParsyncClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
