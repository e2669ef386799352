"""Choose the tasks that parsync places, and their options: by call, task, settings file or the workers' app."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from celery import Celery

from ..client import ParsyncClient
from ..errors import InvalidInput, ServerUnreachable
from ..model.apps import KnownTasks
from ..model.ids import is_name, shown
from ..model.options import TaskOptions
from ..settings import load_rules
from .port import Options
from .publish import QUEUE, Unreachable, celery_priority
from .rules import Rules

log = logging.getLogger("parsync.agent")

_MAPS: Final = ("celery.map", "celery.starmap", "celery.chunks")
"""Celery's own tasks that run a user's: they can be asked to go through parsync."""

KNOWN_S: Final = 3.0
"""How long an answer of the server about a task is valid, or the fact that the server does not answer."""


class OptionSource:
    """The options of an app's tasks."""

    def __init__(self, app: Celery, client: Callable[[], ParsyncClient]) -> None:
        self._app, self._client = app, client
        self._known: dict[str, tuple[Options | None, float]] = {}
        self._away = -math.inf, ""
        self._unrouted: set[str] = set()

    @cached_property
    def rules(self) -> Rules:
        """The rules [place] of the settings file, read at the first use."""
        return Rules(load_rules())

    def of(self, name: str, carried: object, call: object) -> dict[str, object] | None:
        """Return the options of a task that parsync places, None if it goes to the broker; raises InvalidInput.

        The options of the call come before those of an earlier attempt (`carried` in its headers), these before the
        task's own, and these before the rule for its name.
        """
        own, rule = self._own(name, call), self.rules.of(name)
        placed = rule if own is None else own
        if call is False or (call is None and (carried is False or (not carried and placed in (None, False)))):
            return None
        merged: dict[str, object] = {}
        for options in (rule, own, carried.get("options") if isinstance(carried, Mapping) else None, call):
            if options is None or isinstance(options, bool):
                continue
            if not isinstance(options, Mapping):
                raise InvalidInput(
                    f"parsync={shown(options)} of task {name} is not valid: it must be a dict, True or False"
                )
            merged.update(options)
        return merged

    def _own(self, name: str, call: object) -> object:
        """Return what a task declares in this app, or else, as the cluster's workers know it, in theirs.

        A task of this app is known only when the app's tasks are.
        """
        app = self._app
        tasks = app.tasks if app.autofinalize or app.finalized else app._tasks
        if name in tasks or call is False:
            return getattr(tasks.get(name), "parsync", None)
        known = self._declared_elsewhere(name)
        if known is None or (call is None and not known.get("place", True)):
            return None
        options = {option: value for option, value in known.items() if option not in ("place", "queue")}
        return {**options, QUEUE: known["queue"]} if known.get("queue") else options

    def _declared_elsewhere(self, name: str) -> Options | None:
        """Return what the workers' app declares for a task that this process has not imported.

        An answer is used again for KNOWN_S seconds, and longer if the server cannot be reached then. The server is
        asked once, without retries. Raises Unreachable if it does not answer and no answer is kept.
        """
        now_s = time.monotonic()
        found, asked_s = self._known.get(name, (None, -math.inf))
        if now_s - asked_s < KNOWN_S:
            return found
        if now_s - self._away[0] >= KNOWN_S:
            try:
                found = self._client().declared([name], iter(())).get(name)
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

    def check(self) -> None:
        """Check what each task declares; raises InvalidInput that names the task."""
        for name in self._app.tasks:
            try:
                TaskOptions.of(self.of(name, None, None))
            except InvalidInput as error:
                raise InvalidInput(f"task {name}: {error}") from None

    def known_tasks(self) -> KnownTasks:
        """Return the tasks of this app and what each declares, for those who submit by name; raises InvalidInput."""
        names = [name for name in self._app.tasks if not name.startswith("celery.") or name in _MAPS]
        found = {name: self._declaration(name) for name in names}
        return KnownTasks.of(
            {name: options for name, options in found.items() if options or is_name("task name", name)}
        )

    def as_declared(self, name: str, given: Options) -> tuple[dict[str, object], str] | None:
        """Return the options and the queue of a task that was submitted by name before any worker knew it.

        The options `given` by the caller come before those that this app declares. None if they do not change.
        """
        declared = {k: v for k, v in (self._declaration(name) or {}).items() if k not in ("place", "expires")}
        merged = {**declared, **given}
        queue, asked = str(merged.pop("queue", "")), str(given.get("queue", ""))
        before = {option: value for option, value in given.items() if option != "queue"}
        if TaskOptions.of(merged, queue) == TaskOptions.of(before, asked):
            return None
        return merged, queue

    def _declaration(self, name: str) -> dict[str, object] | None:
        """Return a task's options with the queue and priority that Celery would give it, None if it has none."""
        own, task = self.of(name, None, None), self._app.tasks[name]
        routed = self._route(name, dict(task._get_exec_options()))
        queue = routed.get("queue")
        found = dict(own or {})
        if (priority := routed.get("priority")) is not None:
            found.setdefault("priority", celery_priority(priority))
        if queue is not None and queue.name != self._app.conf.task_default_queue:
            found["queue"] = queue.name
        if own is None:
            return {**found, "place": False} if found else None
        return found

    # Any: Celery's options of a call, each of its own type
    def _route(self, name: str, options: dict[str, Any]) -> Mapping[str, Any]:
        """Return how Celery routes a task whatever its arguments are, without a queue if the routers need arguments.

        A router is the app's own code and may read arguments, of which there are none here.
        """
        try:
            routed: Mapping[str, Any] = self._app.amqp.router.route(options, name)  # Any: as above
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
