"""The client of a cluster, ParsyncClient: it submits tasks, asks for states and drains nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from ..errors import InvalidInput
from ..model.events import Event, Wanted, time_line
from ..model.explanation import Explanation, Outlook
from ..model.human import needs_given
from ..model.ids import check_name, decode_id, encode_id, new_id, shown
from ..model.node import drain_terms
from ..model.status import TaskStatus
from ..model.task import Submission, TaskState
from ..model.views import Evenness, KindView, NameView, NodeView, PartitionView, measure_evenness
from ..near import near_node
from ..settings import Settings
from ..store.reads.cancel import Selection, find_purgeable, find_selected, purge_tasks
from ..store.reads.demand import read_demand
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.tasks import list_tasks
from ..store.reads.times import read_names
from ..store.reads.views import find_node, read_node_views, read_views
from ..store.server.connection import BLOCKING
from ..submission import Declared, Item, PlanOptions, SubmitOptions, refused_limit
from .policy_methods import PolicyMethods
from .requests import CLIENT_RETRY_FOR_S, Requests, wait_until_final
from .submitter import Submitter


class ParsyncClient(PolicyMethods):
    """The client of a cluster: it submits tasks, asks for their states and drains nodes.

    Any thread may use it; close it, or use it in a `with`. Its first request checks the server and
    the cluster's settings. Every request may raise: ServerUnreachable, if no server answers for
    `retry_for_s` seconds; ServerReadOnly, if no server takes writes for that time; ServerFull, at
    once; ServerUnfit, for a server that is too old or evicts keys; ClusterMismatch, for settings
    that differ from the running cluster's; InvalidInput, for a wrong argument.
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
        """Check the server and the cluster's settings once; other requests do it by themselves."""
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
        the task does not start. expires: seconds from now, or a datetime, after which the task is
        not started. options: what the task asks for (slots, resources, ...; docs/options.md has the
        table), queue (only nodes that consume it are candidates), and time_limit, link, headers,
        ... as in Celery.

        Raises UnknownTask if nodes are registered and none knows the name; UnknownLimit if the
        policy does not have one of its limits; Infeasible, naming the largest there is, if none
        could ever hold it. A cluster without nodes accepts any task,
        which then waits for one.
        """
        when = {"countdown": countdown, "expires": expires}
        return self._submitter.submit_one(
            {"name": name, "args": args, "kwargs": kwargs, "id": id, **when, **options}
        )

    def submit_many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submit tasks and return their ids; 500 tasks make one round trip.

        tasks: each is (name, args, kwargs), or a mapping with the arguments of `submit`. Batches
        are sent while an iterator is read, so millions of tasks need memory only for their ids.

        Raises what `submit` raises, with the index of the first offending task. All earlier batches
        were submitted then, and no later batch was. If a check before the sending (arguments,
        options) found the task, no task of its batch was submitted. If the server refused the task,
        the other tasks of its batch were submitted. Submitting the same ids again is safe.
        """
        return self._submitter.submit_many(tasks)

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Return the options that the workers' apps declare for these task names.

        pauses: as for `send`.
        """
        return self._submitter.declared(names, pauses)

    def send(self, tasks: Sequence[Submission], pauses: Iterator[float] | None = None) -> list[str]:
        """Submit prepared tasks; return submit's word for each.

        pauses: seconds to wait before each further try; the default tries for `retry_for_s`
        seconds.
        """
        return self.requests.submit(tasks, pauses)

    # -- ask ---------------------------------------------------------------------------------------

    def status(self, id: str) -> TaskStatus:
        """Return the status of the task `id`; its state is `gone` if nothing is known of it.

        The status has the state, the place, the attempt, and the time of each step.
        """
        return self.statuses([id])[0]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return the statuses of the tasks `ids`, in their order; 500 ids make one round trip."""
        return self.requests.in_batches([encode_id(id) for id in ids], self.store.statuses)

    def wait(self, ids: Iterable[str], timeout: float | None = None) -> dict[str, TaskStatus]:
        """Wait until all `ids` are final or gone; return a status per id.

        An id is gone if the server has no record of it. timeout: seconds, None for ever. Raises a
        TimeoutError after it, with the number of tasks that are not final.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        wait_until_final(self.requests, names, timeout)
        plain = [decode_id(id) for id in names]
        return dict(zip(plain, self.statuses(plain), strict=True))

    def cancel(self, id: str) -> str:
        """Cancel the task `id`; return `cancelled`, `asked`, or the task's state.

        `asked`: the task runs, and its node ends it. A state (succeeded, failed, cancelled, dead or
        gone): the task had that state, and nothing was changed.
        """
        (word,) = self.cancel_many([id]).values()
        return word

    def cancel_many(self, ids: Iterable[str]) -> dict[str, str]:
        """Cancel the tasks `ids`, 500 in a call; return {id: word}, with the words of `cancel`."""
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        return dict(zip(map(decode_id, names), self.requests.cancel(names), strict=True))

    def cancel_where(
        self, kind: str | None = None, name: str = "*", state: str = "waiting"
    ) -> dict[str, int]:
        """Cancel all tasks of a kind, of some names and in a state; return {"cancelled": 100000}.

        The numbers are by word, as `cancel` returns it.

        kind: a kind as in `demand`, None for any.
        name: a pattern, 'proj.*'.
        state: waiting, placed, or running; running tasks are `asked` to end. A task that
            changes its state meanwhile is left alone, and its word is the new state. A task that is
            submitted meanwhile may be left out.

        Raises InvalidInput, and AccessDenied if this login may not list tasks.
        """
        chosen = Selection(state, name, kind and needs_given(kind))
        tasks = self.requests.do(lambda: find_selected(self.store, chosen))
        return dict(Counter(self.requests.cancel(tasks, chosen.how)))

    def demand(self) -> list[KindView]:
        """Return the kinds of the waiting tasks, in the order in which schedulers take them.

        One read. Tasks that are not due yet do not count. A damaged line is left out, with a
        warning in the log.
        """
        return self.requests.do(lambda: read_demand(self.store))

    def names(self) -> list[NameView]:
        """Return the run times that nodes have learnt, sorted by task name."""
        return self.requests.do(lambda: read_names(self.store))

    def explain(self, id: str) -> Explanation:
        """Return why the task `id` waits or where it is, as the cluster is now.

        A waiting task gets: what keeps each node from the task; which tasks hold the nearest node,
        and until when; how many tasks come before; when the task may start; what would let the task
        run. If a node has room, `candidates` ranks the first ten such nodes. This reads all nodes,
        so do not poll it.
        """
        from ..inspect.explanation import explain_task  # a client that only submits does without

        key = encode_id(id)
        return self.requests.do(lambda: explain_task(self.requests.store, key))

    def plan(
        self, name: str, *, queue: str | None = None, **options: Unpack[PlanOptions]
    ) -> Explanation:
        """Return what would become of a task if a caller submitted it now.

        Nothing is submitted. `candidates` ranks the first ten nodes with room, as schedulers do.

        name: the task's name.
        queue, options: as for `submit`; the options that the task's app declares apply as well.
            A countdown does not count.

        Raises InvalidInput. The explanation says what `submit` would raise as Infeasible,
        UnknownTask or UnknownLimit.
        """
        from ..inspect.explanation import explain_plan

        check_name("task name", name)
        placement_options = self._submitter.options_of({"name": name, "queue": queue, **options})
        store = self.requests.store
        planned = self.requests.do(lambda: near_node(store, placement_options))
        task = Submission(new_id(), name, b"", planned)
        refusal = self.requests.do(lambda: refused_limit(store, task))
        explanation = self.requests.do(
            lambda: explain_plan(
                store,
                name,
                planned.needs,
                planned.priority,
                planned.strategy,
                planned.tenant,
                planned.limits,
                task.kind.prefer,
            )
        )
        if refusal is None:
            return explanation
        return replace(explanation, outlook=Outlook.REFUSED, why=str(refusal))

    def with_reasons(self, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
        """Return the same tasks with a fresh `why` for each waiting task.

        tasks: statuses from `status` or `statuses`, whose `why` is the reason that a scheduler
        wrote last, and may be old. The fresh `why` says what keeps the task now, and which tasks
        hold what it needs. This reads all nodes, so do not poll it.
        """
        from ..inspect.waiting import explain_tasks

        return self.requests.do(lambda: explain_tasks(self.requests.store, tasks))

    def events(
        self,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        task: str | None = None,
        node: str | None = None,
        events: Iterable[str] = (),
        limit: int = 100,
        follow: bool = False,
    ) -> Iterator[Event]:
        """Yield the newest `limit` events of the cluster, the oldest first.

        A task that is placed and succeeds makes no event. With `task` the steps in the task's
        record come as well.

        since_ms, until_ms: only events from and until this server time.
        task, node: only events of this task or node.
        events: only these words (`failed`, `down`, ...).
        follow: continue for ever with new events, read four times a second.

        Raises InvalidInput, and AccessDenied if this login may not read events.
        """
        selection = Wanted.of(since_ms, until_ms, task, node, events)
        return self._events(selection, limit, follow)

    def _events(self, selection: Wanted, limit: int, follow: bool) -> Iterator[Event]:
        # a client that only submits does without
        from ..store.reads.events import FOLLOW_POLL_S, Follower

        follower = self.requests.do(lambda: Follower(self.requests.store, selection))
        events = self.requests.do(lambda: follower.begin(limit))
        if selection.task:
            (status,) = self.requests.in_batches(
                [encode_id(selection.task)], self.requests.store.statuses
            )
            events = [event for event in time_line(status, events) if selection.has(event)][-limit:]
        yield from events
        while follow:
            self.requests.sleep(FOLLOW_POLL_S)
            yield from self.requests.do(follower.poll)

    # -- dead tasks --------------------------------------------------------------------------------

    def dead(self, limit: int = 100) -> list[TaskStatus]:
        """Return the newest `limit` dead tasks with their histories.

        10,000 dead tasks are kept until they are requeued.
        """
        return self.requests.do(lambda: list_tasks(self.store, {TaskState.DEAD}, limit))

    def requeue(self, ids: Iterable[str]) -> dict[str, str]:
        """Requeue the dead tasks `ids`; return {id: `revived` or the task's state}.

        State `gone`: nothing is known of the id. A requeued task counts its starts from 0 again,
        and its attempts go on. An AsyncResult that got the death gets RETRY.
        """
        names = list(dict.fromkeys(encode_id(id) for id in ids))
        return dict(zip(map(decode_id, names), self.requests.revive(names), strict=True))

    requeue_dead = requeue

    def purge(self, state: str = "waiting", name: str = "*", older_than_s: float = 0.0) -> int:
        """Cancel waiting tasks, or delete the records of ended tasks; return their number.

        state: waiting, succeeded, failed, cancelled or dead.
        name: a pattern, 'proj.*'.
        older_than_s: only tasks that were submitted, or have ended, longer ago than this. A
            task that is placed or runs is never touched.

        Raises InvalidInput.
        """
        tasks = self.requests.do(lambda: find_purgeable(self.store, state, name, older_than_s))
        return self.requests.do(lambda: purge_tasks(self.store, tasks))

    # -- the cluster -------------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        """Return every node, sorted by name."""
        return self.requests.do(lambda: read_node_views(self.store))

    def partitions(self) -> list[PartitionView]:
        """Return every partition, sorted by number; [] before the cluster's first scheduler."""
        return self.requests.do(lambda: [partition for partition, _ in read_views(self.store)])

    def evenness(self) -> Evenness:
        """Return how much the partitions differ in slots, mean score and labels."""
        return measure_evenness(self.partitions())

    def drain(self, node: str, deadline_s: float | None = None, reason: str = "") -> NodeView:
        """Drain a node: it gets no new claims, also after a restart, and its runs go on.

        deadline_s: after so many seconds, counted by the leader, the remaining runs are ended and
            placed elsewhere; these starts do not count.
        reason: a line for people. A second call replaces the terms of the first.

        Raises InvalidInput.
        """
        return self._set_node(node, "drain", drain_terms(deadline_s, reason))

    def undrain(self, node: str) -> NodeView:
        """Undrain a drained or suspect node, so that it gets claims again; raises InvalidInput."""
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

    def __exit__(self, *_: object) -> None:
        self.close()
