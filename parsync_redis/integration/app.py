"""`Parsync(app)`: one line that lets a Celery app place tasks through parsync.

Tasks with `parsync={...}` go to the queue in Redis instead of a broker queue; everything that Celery does around
publishing (signals, events, routing, serializers) happens as ever. Tasks without it keep going where they went. A
worker with a `--parsync-...` option is a node.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from signal import Signals
from typing import Any
from urllib.parse import urlencode

import click
from billiard.common import TERM_SIGNAME
from celery import Celery
from celery._state import get_current_worker_task
from celery.platforms import signals
from kombu.utils.functional import maybe_list

from ..client import ParsyncClient
from ..errors import AccessDenied, InvalidInput, ServerUnreachable
from ..model.address import SCHEME, as_redis, safe_url
from ..model.apps import KnownTasks
from ..model.ids import encode_id, is_name, shown
from ..model.needs import parse_resources
from ..model.task import Submission, TaskOptions
from ..settings import Settings, load_rules
from ..store.purge import find_purgeable, purge_tasks
from ..submission import explain_refusal
from ..worker.results import announce_these, can_announce
from .background import Background
from .components import extend
from .publish import Unreachable
from .rules import Rules

WORKER_OPTIONS = (
    (("--parsync",), {"is_flag": True, "default": None, "help": "Be a node of the cluster, with all defaults."}),
    (("--parsync-only",), {"is_flag": True, "default": None, "help": "Be a node that runs placed tasks only."}),
    (("--parsync-node",), {"metavar": "NAME", "help": "Be a node of that name; the default is the worker's own name."}),
    (("--parsync-slots",), {"type": int, "help": "Slots of the node; the default is the worker's concurrency."}),
    (("--parsync-score",), {"type": float, "help": "How good the node is, on a scale of your own; default 1."}),
    (("--parsync-label",), {"multiple": True, "metavar": "NAME=VALUE", "help": "A label of the node; repeatable."}),
    (("--parsync-resource",), {"multiple": True, "metavar": "NAME=AMOUNT", "help": "An amount it has, mem=64GiB."}),
    (("--parsync-with-scheduler",), {"is_flag": True, "default": None, "help": "Run a scheduler beside the worker."}),
)


log = logging.getLogger("parsync.agent")

_MAPS = ("celery.map", "celery.starmap", "celery.chunks")
"""Celery's own tasks that run a user's: they can be asked to go through parsync."""

KNOWN_S = 3.0
"""For how long what the server says of a task holds, or that it does not answer."""

QUEUE = "_queue"
"""The option, of a message on its way only, that says to which queue the workers' app routes a task."""


class Parsync:
    """Parsync of one Celery app. `url` is by default PARSYNC_URL, else the app's broker; `cluster` PARSYNC_CLUSTER."""

    def __init__(self, app: Celery, url: str | None = None, cluster: str | None = None) -> None:
        before = getattr(app, "parsync", None)
        if before is not None and not before.of_loader:
            raise InvalidInput(f"this Celery app ({app.main}) has a Parsync already: call Parsync(app) once")
        self.app, self._url, self._cluster = app, url, cluster
        self._lock = threading.Lock()
        self._client: ParsyncClient | None = None
        self._known: dict[str, tuple[Mapping[str, Any] | None, float]] = {}
        self._away = -math.inf, ""
        self._unrouted: set[str] = set()
        self.of_loader = False  # made by CELERY_LOADER: one that the app's code makes takes its place
        self.agent: Any = None
        self.background = Background()
        app.parsync = self
        for component in ("amqp", "control"):
            extend(app, component, (url, cluster))
        from ..worker.bootsteps import Inbox, NodeStep
        from ..worker.watch_cluster import WatchStep

        app.steps["worker"] |= {NodeStep, WatchStep}
        app.steps["consumer"].add(Inbox)
        for names, options in WORKER_OPTIONS if before is None else ():
            app.user_options["worker"].add(click.Option(names, **options))

    # -- settings and client -----------------------------------------------------------------------------------------

    def settings(self) -> Settings:
        """The settings: arguments, then PARSYNC_*, then the TOML file; the address falls back to the app's broker."""
        settings = Settings.load(url=self._url, cluster=self._cluster)
        if "url" in settings.model_fields_set:
            return settings
        broker = broker_address(self.app.connection_for_write())
        if broker is None:
            raise InvalidInput(
                f"the app's broker is {safe_url(str(self.app.conf.broker_url))}, not Redis: "
                "say where parsync's server is with Parsync(app, url=...) or PARSYNC_URL"
            )
        return Settings.load(url=broker, cluster=self._cluster)

    @property
    def client(self) -> ParsyncClient:
        """The client that submits; made with the first use."""
        with self._lock:
            if self._client is None:
                self._client = ParsyncClient(self.settings())
            return self._client

    # -- submitting --------------------------------------------------------------------------------------------------

    def wish(self, name: str, carried: Any, call: Any) -> dict[str, Any] | None:
        """The parsync options of a message, or None if it goes to the broker.

        The call's go over those of an earlier attempt (`carried` in its headers), these over the task's own, and these
        over the rule for its name.
        """
        own, rule = self._own(name, call), self.rules.of(name)
        placed = rule if own is None else own
        if call is False or (call is None and (carried is False or (not carried and placed in (None, False)))):
            return None
        merged: dict[str, Any] = {}
        for options in (rule, own, carried.get("options") if isinstance(carried, Mapping) else None, call):
            if options is None or isinstance(options, bool):
                continue
            if not isinstance(options, Mapping):
                raise InvalidInput(
                    f"parsync={shown(options)} of task {name} is not valid: it must be a dict, True or False"
                )
            merged.update(options)
        return merged

    @cached_property
    def rules(self) -> Rules:
        """The rules [place] of the settings file; read with the first use."""
        return Rules(load_rules())

    def _own(self, name: str, call: Any) -> Any:
        """What a task says of itself in this app, or else, as the cluster's workers know it, in theirs.

        A task of this app is known only once the app's tasks are.
        """
        app = self.app
        tasks = app.tasks if app.autofinalize or app.finalized else app._tasks
        if name in tasks or call is False:
            return getattr(tasks.get(name), "parsync", None)
        known = self._declared(name)
        if known is None or (call is None and not known.get("place", True)):
            return None
        options = {option: value for option, value in known.items() if option not in ("place", "queue")}
        return {**options, QUEUE: known["queue"]} if known.get("queue") else options

    def _declared(self, name: str) -> Mapping[str, Any] | None:
        """What the workers' app declares for a task that this process has not imported.

        An answer holds for KNOWN_S, and while the server cannot be reached. Nobody waits for a server that is away.
        """
        now_s = time.monotonic()
        found, asked_s = self._known.get(name, (None, -math.inf))
        if now_s - asked_s < KNOWN_S:
            return found
        if now_s - self._away[0] >= KNOWN_S:
            try:
                found = self.client.declared([name], iter(())).get(name)
                self._known[name] = found, now_s
                return found
            except ServerUnreachable as error:
                self._away = time.monotonic(), str(error)
        if name not in self._known:
            raise Unreachable(
                f"{self._away[1]}; it knows whether task {name} is placed by parsync, which this process has not "
                "imported; parsync=False sends it to the broker"
            )
        return found

    def known_tasks(self) -> KnownTasks:
        """The tasks of this app and what each declares, for those who submit by name; raises InvalidInput."""
        names = [name for name in self.app.tasks if not name.startswith("celery.") or name in _MAPS]
        found = {name: self._declaration(name) for name in names}
        return KnownTasks.of(
            {name: options for name, options in found.items() if options or is_name("task name", name)}
        )

    def as_declared(self, name: str, said: Mapping[str, Any]) -> tuple[dict[str, Any], str] | None:
        """The options and the queue of a task that was submitted by name before any worker knew it; None if they stay.

        The caller's options go over those that this app declares.
        """
        declared = {k: v for k, v in (self._declaration(name) or {}).items() if k not in ("place", "expires")}
        merged = {**declared, **said}
        queue, asked = str(merged.pop("queue", "")), str(said.get("queue", ""))
        before = {option: value for option, value in said.items() if option != "queue"}
        if TaskOptions.of(merged, queue) == TaskOptions.of(before, asked):
            return None
        return merged, queue

    def _declaration(self, name: str) -> dict[str, Any] | None:
        """A task's options, with the queue and the priority that Celery would give it; None if it has none."""
        wish, task = self.wish(name, None, None), self.app.tasks[name]
        options = self._route(name, dict(task._get_exec_options()))
        queue = options.get("queue")
        found = dict(wish or {})
        if (priority := options.get("priority")) is not None:
            found.setdefault("priority", min(9, max(0, int(priority))))
        if queue is not None and queue.name != self.app.conf.task_default_queue:
            found["queue"] = queue.name
        if wish is None:
            return {**found, "place": False} if found else None
        return found

    def _route(self, name: str, options: dict[str, Any]) -> Mapping[str, Any]:
        """How Celery routes a task, whatever its arguments are; without a queue if the app's routers cannot say.

        A router is the app's own code and may read arguments, of which there are none here.
        """
        try:
            routed: Mapping[str, Any] = self.app.amqp.router.route(options, name)
            return routed
        except Exception as error:
            if name not in self._unrouted:
                self._unrouted.add(name)
                log.warning(
                    "task %s has no queue when it is submitted by name only: its route cannot be found without "
                    "arguments (%s: %s)",
                    name,
                    type(error).__name__,
                    error,
                )
            return {"priority": options.get("priority")}

    def check_tasks(self) -> None:
        """Checks what each task says of itself; raises InvalidInput naming the task."""
        for name in self.app.tasks:
            try:
                TaskOptions.of(self.wish(name, None, None))
            except InvalidInput as error:
                raise InvalidInput(f"task {name}: {error}") from None

    def submit(
        self,
        name: str,
        id: str,
        message: bytes,
        options: dict[str, Any],
        queue: str,
        delay_ms: int | None,
        expiry_ms: int | None = None,
        pauses: Iterator[float] | None = None,
    ) -> None:
        """Submits a message that Celery made; raises InvalidInput, UnknownTask, Infeasible or ServerUnreachable.

        queue: as `queue_of` gives it. pauses: as for `ParsyncClient.send`.

        An id that is published again begins a new life once it has ended, as with Celery. What a run publishes bears
        the number of that task's life: when a lost run is repeated, what it publishes again is recognised.
        """
        key, (running, life) = encode_id(id), _running()
        after = running.request.parsync["attempt"] if running is not None and running.request.id == id else ""
        as_before = after and running.name == name and not options.keys() - {"priority"}  # which Celery always repeats
        wanted = self._as_before(key) if as_before else TaskOptions.of(options, queue)
        publication = f"s{life}" if running is not None else f"c{random.getrandbits(64):x}"
        task = Submission(key, name, message, wanted, delay_ms, after, expiry_ms, publication)
        word = self.client.send([task], pauses)[0]
        if word == "next":
            return
        if word == "stale":
            log.warning("task %s was given to another node while it ran here: what it submits next does not count", id)
            return
        if error := explain_refusal(self.client.store, task, word):
            raise error

    def _as_before(self, key: str) -> TaskOptions:
        """The options of the task's record: what a client asked for that has no Celery app to carry them."""
        found = self.client.store.statuses([key])[0]
        if not found.needs:
            return TaskOptions()
        return TaskOptions(parse_resources(found.needs), found.priority, found.strategy, max_starts=found.max_starts)

    def revoke(self, task_id: Any, terminate: bool, signal: Any) -> bool:
        """Cancels tasks in the queue; a running one is ended only if `terminate`. Whether all were parsync's."""
        store = self.client.store
        ids = [encode_id(str(id)) for id in maybe_list(task_id) or []]
        how = signal_name(signal) if terminate else "after"
        words = store.run_all([store.commands.cancel(id, "revoked", how) for id in ids])
        done = [id for id, word in zip(ids, words, strict=True) if word[0] == "cancelled"]
        entries = [f"{id} cancelled revoked".encode() for id in done]
        if entries and can_announce(self.app):
            announce_these(store, self.app, entries, self._send_event if self.app.conf.task_send_sent_event else None)
        return all(word[0] != "none" for word in words)

    def _send_event(self, kind: str, **fields: Any) -> None:
        def send() -> None:
            with self.app.events.default_dispatcher() as events:
                events.send(kind, **fields)

        self.background.do(send)

    def purge(self) -> int:
        """Cancels the tasks of this app that wait in the queue; how many. None if this login may not list them."""
        store = self.client.store
        try:
            return purge_tasks(store, find_purgeable(store, known=self.app.tasks.keys()))
        except AccessDenied as error:
            log.warning(
                "what waits in parsync is not purged: %s; `parsync purge` does it with a scheduler's login", error
            )
            return 0


def _running() -> tuple[Any, str]:
    """The task whose attempt runs here and now, and the number of its life; (None, '') outside of one."""
    running = get_current_worker_task()
    place = getattr(running.request, "parsync", None) if running is not None else None
    if not isinstance(place, Mapping) or "attempt" not in place:
        return None, ""
    return running, str(place["attempt"]).partition("@")[2].partition(".")[0]


def signal_name(signal: Any) -> str:
    """The name of a signal, as a cancel stores it; None is Celery's default. Raises InvalidInput."""
    try:
        return Signals(signals.signum(signal or TERM_SIGNAME)).name
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidInput(
            f"signal={shown(signal)} is not valid: it must be a name like SIGTERM, or a number"
        ) from None


def broker_address(connection: Any) -> str | None:
    """Where a kombu connection's broker is, as `PARSYNC_URL` would say it; None if it is not Redis.

    Raises InvalidInput if it names Sentinels, but not which service they watch.
    """
    broker = str(connection.as_uri(include_password=True))
    if not broker.startswith(SCHEME):
        return redis_url(broker)
    options = connection.transport_options
    if not options.get("master_name"):
        raise InvalidInput(
            f"the app's broker is {safe_url(broker)}, but which service is not said: "
            "set broker_transport_options = {'master_name': ...}"
        )
    login = {
        f"sentinel_{key}": value
        for key, value in (options.get("sentinel_kwargs") or {}).items()
        if key in ("username", "password") and value
    }
    places = [str(place).partition("?")[0] for place in connection.alt or [broker]]
    return f"{';'.join(places)}?{urlencode({'service': options['master_name'], **login})}"


def redis_url(broker: str) -> str | None:
    """A kombu broker URL as redis-py reads it, None if the broker is not Redis."""
    if broker.startswith(("redis://", "rediss://", "valkey://", "valkeys://")):
        return as_redis(broker.split(";")[0])
    for prefix, scheme in (("redis+socket://", "unix://"), ("socket://", "unix://")):
        if broker.startswith(prefix):
            return scheme + broker.removeprefix(prefix).replace("virtual_host=", "db=")
    return None
