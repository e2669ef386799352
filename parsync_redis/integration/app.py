"""`Parsync(app)`: one line that lets a Celery app place tasks through parsync.

A task with `parsync={...}` goes to the queue in Redis instead of a broker queue. Celery's own steps
around publishing (signals, events, routing, serializers) happen as always. A task without the
option goes to the broker as before. A worker with a `--parsync-...` option is a node.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from signal import Signals
from typing import TYPE_CHECKING, TypeVar

from billiard.common import TERM_SIGNAME
from celery import Celery, Task
from celery._state import get_current_worker_task
from celery.platforms import signals
from kombu.utils.functional import maybe_list

from ..client import ParsyncClient
from ..errors import AccessDenied, InvalidInput
from ..model.account import limits_of
from ..model.address import safe_url
from ..model.ids import encode_id, shown
from ..model.options import TaskOptions
from ..model.parameters import Arguments
from ..model.policy import Policy
from ..model.policy_reader import read_declared
from ..model.status import kept_options
from ..model.task import Submission
from ..settings import Settings
from ..store.reads.cancel import cancel_tasks, find_purgeable, purge_tasks
from ..store.store import Store
from ..submission import explain_refusal
from ..worker.celery.results_outbox import Owed, announce_entries, can_announce
from .address import broker_address
from .background import Background
from .components import DeclaredLimits, Source, extend
from .options import OptionSource, check_declarations
from .port import Options
from .refusals import extend_retry
from .worker_options import add_worker_options

if TYPE_CHECKING:
    from ..worker.node.agent import Agent

T = TypeVar("T")
log = logging.getLogger("parsync.agent")

_lock = threading.Lock()
"""Held while a client is made, changed or read."""
# a thread of the parent may hold the lock, and does not live in the child
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


class Parsync:
    """Parsync of one Celery app.

    url: the server's address; by default PARSYNC_URL, else the app's broker.
    cluster: the cluster's name; by default PARSYNC_CLUSTER.
    limits: the limits that the app declares, by name or pattern: {"stripe": 5, "customer:*": 1,
        "api": {"at_once": 5, "rate": "100/m"}}. A number stands for `at_once`. The workers of the
        app register them; an entry of the policy counts in their place.

    Raises InvalidInput if the app has a Parsync already, or for a limit that is not valid.
    """

    def __init__(
        self,
        app: Celery,
        url: str | None = None,
        cluster: str | None = None,
        limits: DeclaredLimits | None = None,
    ) -> None:
        self.limits = read_declared({} if limits is None else limits)
        before = getattr(app, "parsync", None)
        if before is not None and not before.of_loader:
            raise InvalidInput(
                f"this Celery app ({app.main}) has a Parsync already: call Parsync(app) once"
            )
        self.app = app
        self._url = url
        self._cluster = cluster
        self._client: ParsyncClient | None = None
        self.options = OptionSource(app, lambda: self.client)
        # made by CELERY_LOADER: a Parsync that the app's code makes takes its place
        self.of_loader = False
        self.agent: Agent | None = None
        self.background = Background()
        self._owed: Owed = deque()
        app.parsync = self
        for component in ("amqp", "control"):
            extend(app, component, Source(Parsync, url, cluster, limits))
        extend_retry()
        check_declarations(app)
        from ..worker.celery.bootsteps import Inbox, NodeStep
        from ..worker.celery.watch_cluster import WatchStep

        app.steps["worker"] |= {NodeStep, WatchStep}
        app.steps["consumer"].add(Inbox)
        if before is None:
            add_worker_options(app)

    # -- settings and client -----------------------------------------------------------------------

    def settings(self) -> Settings:
        """Return the settings: arguments, then PARSYNC_*, then the TOML file.

        The default url is the app's broker. Raises InvalidInput if the broker's address cannot be
        parsync's.
        """
        settings = Settings.load(url=self._url, cluster=self._cluster)
        if "url" in settings.model_fields_set:
            return settings
        connection = self.app.connection_for_write()
        broker = broker_address(connection)
        if broker is None:
            raise InvalidInput(
                f"the app's broker is {safe_url(str(self.app.conf.broker_url))}, not Redis: "
                "say where parsync's server is with Parsync(app, url=...) or PARSYNC_URL"
            )
        prefix = (connection.transport_options or {}).get("global_keyprefix")
        if prefix and "cluster" not in settings.model_fields_set:
            raise InvalidInput(
                f"the app's broker has global_keyprefix={shown(prefix)}, which parsync's keys do "
                "not get: apps with different prefixes would share a cluster, so name it with "
                "Parsync(app, cluster=...) or PARSYNC_CLUSTER"
            )
        return Settings.load(url=broker, cluster=self._cluster)

    @property
    def client(self) -> ParsyncClient:
        """The client that submits, made at the first use."""
        with _lock:
            if self._client is None:
                self._client = ParsyncClient(self.settings())
            return self._client

    def move_to(self, url: str | None, cluster: str | None) -> tuple[str | None, str | None]:
        """Submit to another cluster from now on, for tests; return the old url and cluster."""
        with _lock:
            before = (self._url, self._cluster)
            client = self._client
            self._url = url
            self._cluster = cluster
            self._client = None
        if client is not None:
            client.close()
        return before

    def check_tasks(self) -> None:
        """Check the options that each task declares; raises InvalidInput with its name."""
        self.options.check()

    # -- submitting --------------------------------------------------------------------------------

    def options_of(self, name: str, carried: object, call: object) -> dict[str, object] | None:
        """Return the options of a placed task, None for the broker: see `OptionSource.of`."""
        return self.options.of(name, carried, call)

    def fill(self, options: Options, arguments: Arguments) -> Options:
        """Return options with arguments of a call: see `OptionSource.fill`."""
        return self.options.fill(options, arguments)

    def submit(
        self,
        name: str,
        id: str,
        message: bytes,
        options: Options,
        queue: str,
        delay_ms: int | None,
        expiry_ms: int | None = None,
        pauses: Iterator[float] | None = None,
        as_recorded: bool = False,
    ) -> None:
        """Submit a message that Celery made.

        queue: as `queue_of` returns it.
        pauses: as for `ParsyncClient.send`.
        as_recorded: whether a retry has the options of its task's record.

        Raises InvalidInput, UnknownTask, Infeasible or ServerUnreachable.

        An id that is published again after its end begins a new life, as with Celery. A run
        publishes with the number of its own task's life. So when a lost run is repeated, its
        publications are recognised.
        """
        key = encode_id(id)
        (running, life) = _running()
        after = (
            running.request.parsync["attempt"]
            if running is not None and running.request.id == id
            else ""
        )
        as_before = (
            after
            and running is not None
            and running.name == name
            and (as_recorded or not options.keys() - {"priority"})
        )  # which Celery always repeats
        task_options = self._as_before(key) if as_before else TaskOptions.of(options, queue)
        publication = f"s{life}" if running is not None else f"c{random.getrandbits(64):x}"
        task = Submission(
            key,
            name,
            message,
            task_options,
            delay_ms,
            after,
            expiry_ms,
            publication,
            declares_limits=self._declares(task_options.limits),
        )
        word = self.client.send([task], pauses)[0]
        if word == "next":
            return
        if word == "stale":
            log.warning(
                "task %s was given to another node while it ran here: what it submits next does "
                "not count",
                id,
            )
            return
        if error := explain_refusal(self.client.store, task, word):
            raise error

    def _declares(self, limits: str) -> bool:
        """Return whether this app declares each limit of a task.

        Such a task may wait for a worker of the app, which makes the limits known.
        """
        declared = Policy(limits=self.limits)
        return all(declared.limit(limit.name) for limit in limits_of(limits))

    def _as_before(self, key: str) -> TaskOptions:
        """Return the options of the task's record.

        A client without a Celery app has no message that carries the options.
        """
        return kept_options(self._ask(lambda store: store.statuses([key])[0]))

    def _ask(self, request: Callable[[Store], T]) -> T:
        """Return a store's answer to a request, which is not repeated.

        The store knows the cluster's settings.
        """
        client = self.client
        return client.requests.do(lambda: request(client.store), iter(()))

    # -- cancelling --------------------------------------------------------------------------------

    def revoke(self, task_id: object, terminate: bool, signal: object) -> bool:
        """Cancel tasks in the queue, and running tasks if `terminate`.

        Returns True if all of the tasks were parsync's.
        """
        ids = [encode_id(str(id)) for id in maybe_list(task_id) or []]
        how = signal_name(signal) if terminate else "after"
        answers = self._ask(lambda store: cancel_tasks(store, ids, "revoked", how))
        done = [id for id, (word, _) in zip(ids, answers, strict=True) if word == "cancelled"]
        entries = [f"{id} cancelled revoked" for id in done]
        if entries and can_announce(self.app):
            send_event = self._send_event if self.app.conf.task_send_sent_event else None
            announce_entries(self.client.store, self.app, entries, self._owed, send_event)
        return all(word != "none" for word, _ in answers)

    def _send_event(self, kind: str, **fields: object) -> None:
        def send() -> None:
            with self.app.events.default_dispatcher() as events:
                events.send(kind, **fields)

        self.background.do(send)

    def purge(self) -> int:
        """Cancel the tasks of this app that wait in the queue; return their number.

        The number is 0 if this login may not list the tasks.
        """
        try:
            return self._ask(
                lambda store: purge_tasks(
                    store, find_purgeable(store, allowed_names=self.app.tasks.keys())
                )
            )
        except AccessDenied as error:
            log.warning(
                "what waits in parsync is not purged: %s; `parsync cancel --state waiting` cancels "
                "it with a scheduler's login",
                error,
            )
            return 0


def _running() -> tuple[Task | None, str]:
    """Return the placed task that runs here, and the number of its life.

    Returns (None, '') outside of a task.
    """
    running = get_current_worker_task()
    place = getattr(running.request, "parsync", None) if running is not None else None
    if not isinstance(place, Mapping) or "attempt" not in place:
        return None, ""
    return running, str(place["attempt"]).partition("@")[2].partition(".")[0]


def signal_name(signal: object) -> str:
    """Return the name of a signal as a cancel stores it; None is Celery's default.

    Raises InvalidInput.
    """
    try:
        return Signals(signals.signum(signal or TERM_SIGNAME)).name
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidInput(
            f"signal={shown(signal)} is not valid: it must be a name like SIGTERM, or a number"
        ) from None
