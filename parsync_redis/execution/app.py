"""`Parsync(app)`: one line that lets a Celery app place tasks through parsync.

Tasks with `parsync={...}` go to the queue in Redis instead of a broker queue; everything that Celery does around
publishing (signals, events, routing, serializers) happens as ever. Tasks without it keep going where they went. A
worker with a `--parsync-...` option is a node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from signal import Signals
from typing import Any
from urllib.parse import urlencode

import click
from celery import Celery
from celery._state import get_current_worker_task
from celery.platforms import signals
from kombu.utils.functional import maybe_list

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.ids import shown
from ..model.needs import parse_bundle
from ..model.task import Submission, TaskOptions
from ..settings import Settings
from ..store.sentinel import SCHEME
from ..store.store import safe_url
from ..submission import explain_refusal
from .components import extend
from .verdicts import announce_these, can_announce

WORKER_OPTIONS = (
    (("--parsync",), {"is_flag": True, "default": None, "help": "Be a node of the cluster, with all defaults."}),
    (("--parsync-node",), {"metavar": "NAME", "help": "Be a node of that name; the default is the worker's own name."}),
    (("--parsync-slots",), {"type": int, "help": "Slots of the node; the default is the worker's concurrency."}),
    (("--parsync-score",), {"type": float, "help": "How good the node is, on a scale of your own; default 1."}),
    (("--parsync-label",), {"multiple": True, "metavar": "NAME=VALUE", "help": "A label of the node; repeatable."}),
    (("--parsync-resource",), {"multiple": True, "metavar": "NAME=AMOUNT", "help": "An amount it has, mem=64GiB."}),
)


log = logging.getLogger("parsync.agent")


class Parsync:
    """Parsync of one Celery app. `url` is by default PARSYNC_URL, else the app's broker; `cluster` PARSYNC_CLUSTER."""

    def __init__(self, app: Celery, url: str | None = None, cluster: str | None = None) -> None:
        if getattr(app, "parsync", None) is not None:
            raise InvalidInput(f"this Celery app ({app.main}) has a Parsync already: call Parsync(app) once")
        self.app, self._url, self._cluster = app, url, cluster
        self._lock = threading.Lock()
        self._client: ParsyncClient | None = None
        self.agent: Any = None
        app.parsync = self
        for component in ("amqp", "control"):
            extend(app, component, (url, cluster))
        from .bootsteps import Inbox, NodeStep

        app.steps["worker"].add(NodeStep)
        app.steps["consumer"].add(Inbox)
        for names, options in WORKER_OPTIONS:
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

        The call's go over those of an earlier attempt (`carried` in its headers) and these over the task's own.
        """
        own = self._own(name)
        if call is False or (call is None and (carried is False or (not carried and own in (None, False)))):
            return None
        merged: dict[str, Any] = {}
        for options in (own, carried.get("options") if isinstance(carried, Mapping) else None, call):
            if options is None or isinstance(options, bool):
                continue
            if not isinstance(options, Mapping):
                raise InvalidInput(
                    f"parsync={shown(options)} of task {name} is not valid: it must be a dict, True or False"
                )
            merged.update(options)
        return merged

    def _own(self, name: str) -> Any:
        """What a task of this app says of itself; it is known only once the app's tasks are."""
        app = self.app
        tasks = app.tasks if app.autofinalize or app.finalized else app._tasks
        return getattr(tasks.get(name), "parsync", None)

    def check_tasks(self) -> None:
        """Checks what each task says of itself; raises InvalidInput naming the task."""
        for name in self.app.tasks:
            try:
                TaskOptions.of(self.wish(name, None, None))
            except InvalidInput as error:
                raise InvalidInput(f"task {name}: {error}") from None

    def submit(
        self, name: str, id: str, message: bytes, options: dict[str, Any], delay_ms: int | None,
        expiry_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Submits a message that Celery made; raises InvalidInput, UnknownTask, Infeasible or ServerUnreachable."""
        after, same = self._running(id, name)
        wanted = self._as_before(id) if same and not options else TaskOptions.of(options)
        task = Submission(id, name, message, wanted, delay_ms, after, expiry_ms)
        word = self.client.send([task])[0]
        if word == "next":
            return
        if word == "stale":
            log.warning("task %s was given to another node while it ran here: what it submits next does not count", id)
            return
        if error := explain_refusal(self.client.store, task, word):
            raise error

    @staticmethod
    def _running(id: str, name: str) -> tuple[str, bool]:
        """The attempt that runs here and now, if it is this very task's, so that `id` is its own next run (retry,
        replace); and whether that is the same task, not one that replaces it.
        """
        running = get_current_worker_task()
        request = running.request if running is not None else None
        place = getattr(request, "parsync", None)
        if request is None or request.id != id or not isinstance(place, Mapping):
            return "", False
        return str(place.get("attempt", "")), running.name == name

    def _as_before(self, id: str) -> TaskOptions:
        """The options of the task's record: what a client asked for that has no Celery app to carry them."""
        found = self.client.store.statuses([id])[0]
        return TaskOptions(parse_bundle(found.needs), found.priority, found.strategy) if found.needs else TaskOptions()

    def revoke(self, task_id: Any, terminate: bool, signal: Any) -> None:
        """Cancels tasks in the queue; a running one is ended only if `terminate`."""
        store = self.client.store
        ids = [str(id) for id in maybe_list(task_id) or []]
        how = signal_name(signal) if terminate else "after"
        words = store.run_all([store.commands.cancel(id, "revoked", how) for id in ids])
        done = [id for id, word in zip(ids, words, strict=True) if word[0] == "cancelled"]
        entries = [f"{id} cancelled revoked".encode() for id in done]
        if not entries or not can_announce(self.app):
            return
        if not self.app.conf.task_send_sent_event:
            announce_these(store, self.app, entries)
            return
        with self.app.events.default_dispatcher() as events:
            announce_these(store, self.app, entries, events.send)


def signal_name(signal: Any) -> str:
    """A signal as a cancel writes it down: its name; raises InvalidInput."""
    try:
        return Signals(signals.signum(signal)).name
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
    login = {f"sentinel_{key}": value for key, value in (options.get("sentinel_kwargs") or {}).items()
             if key in ("username", "password") and value}  # fmt: skip
    places = [str(place).partition("?")[0] for place in connection.alt or [broker]]
    return f"{';'.join(places)}?{urlencode({'service': options['master_name'], **login})}"


def redis_url(broker: str) -> str | None:
    """A kombu broker URL as redis-py reads it, None if the broker is not Redis."""
    if broker.startswith(("redis://", "rediss://")):
        return broker.split(";")[0]
    for prefix, scheme in (("redis+socket://", "unix://"), ("socket://", "unix://")):
        if broker.startswith(prefix):
            return scheme + broker.removeprefix(prefix).replace("virtual_host=", "db=")
    return None
