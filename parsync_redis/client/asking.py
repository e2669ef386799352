"""The questions of a client about tasks: why a task waits, and where it would go."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Unpack

from ..model.events import Event, Wanted, time_line
from ..model.explanation import Explanation
from ..model.ids import check_name, encode_id
from ..model.status import TaskStatus
from ..near import near_node
from ..submission import PlanOptions
from .requests import Requests
from .submitter import Submitter


class Asking:
    """The methods of ParsyncClient that explain."""

    requests: Requests
    _submitter: Submitter

    def explain(self, id: str) -> Explanation:
        """Return why the task `id` waits or where it is, as the cluster is now.

        A waiting task gets: what keeps each node from the task; which tasks hold the nearest node,
        and until when; how many tasks come before; when the task may start; what would let the task
        run. This reads all nodes, so do not poll it.
        """
        from ..inspect.explanation import explain_task  # a client that only submits does without

        key = encode_id(id)
        return self.requests.do(lambda: explain_task(self.requests.store, key))

    def plan(
        self, name: str, *, queue: str | None = None, **options: Unpack[PlanOptions]
    ) -> Explanation:
        """Return what would become of a task if a caller submitted it now.

        Nothing is submitted.

        name: the task's name.
        queue, options: as for `submit`; the options that the task's app declares apply as well.
            A countdown does not count.

        Raises InvalidInput. The explanation says what `submit` would raise as Infeasible or
        UnknownTask.
        """
        from ..inspect.explanation import explain_plan

        check_name("task name", name)
        placement_options = self._submitter.options_of({"name": name, "queue": queue, **options})
        store = self.requests.store
        needs = self.requests.do(lambda: near_node(store, placement_options)).needs
        return self.requests.do(
            lambda: explain_plan(
                store, name, needs, placement_options.priority, placement_options.strategy
            )
        )

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
