"""Chooses the tasks that parsync places, and their options.

The sources are the call, the task, the settings file and the workers' app.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, wraps
from inspect import signature
from typing import Any, Final, cast

from celery import Celery, Task
from celery.utils.imports import symbol_by_name

from ..client import ParsyncClient
from ..errors import InvalidInput, ServerUnreachable
from ..model.apps import KnownTasks
from ..model.ids import VERY_CLOSE, close_to, is_name, shown
from ..model.options import CLIENT_NAMES, TaskOptions, unknown_option
from ..model.parameters import Arguments, fill, parameters_in, with_samples
from ..settings import load_rules
from .port import Options
from .publish import AS_RECORDED, ROUTED_QUEUE, Unreachable, celery_priority

log = logging.getLogger("parsync.agent")

CELERYS_OWN: Final = "celery."

_MAPS: Final = ("celery.map", "celery.starmap", "celery.chunks")
"""Celery's own tasks that run a user's task: parsync places them if they ask for it."""

KNOWN_S: Final = 3.0
"""Seconds for which an answer of the server about a task is valid.

The fact that the server does not answer is valid for as long.
"""

_UNPLACED: Final = (
    "cannot be placed by parsync: it has a Strategy of its own, as batch tasks have, and nobody "
    "can tell when a run of it ends; declare parsync=False, and it goes to the broker"
)

OF_DECLARATION: Final = frozenset(("place", "queue", "parameters"))
"""What a declaration has beside options.

place: False for a task of the broker. queue: the queue that its app routes the task to. parameters:
the names of the positional parameters, if the tenant, a limit or the key names parameters.
"""

_PARSYNC: Final = "parsync"
"""The option of tasks and of calls that has parsync's options."""
_OF_OURS: Final = frozenset(CLIENT_NAMES) - {"priority"}
"""The options that belong into `parsync={...}`; Celery has options of the other names."""


class Rules:
    """Rules by task name.

    A rule by name takes precedence over patterns. Of the patterns that match, the first in the file
    counts. A pattern does not match Celery's own tasks (chord_unlock, backend_cleanup): a rule must
    name them.
    """

    def __init__(self, rules: Mapping[str, object]) -> None:
        self._rules = rules
        self._found: dict[str, object] = {}

    def of(self, name: str) -> object:
        """Return the rule for a task: options, True or False; None if there is none."""
        if not self._rules:
            return None
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> object:
        if name in self._rules or name.startswith(CELERYS_OWN):
            return self._rules.get(name)
        return next(
            (rule for pattern, rule in self._rules.items() if fnmatchcase(name, pattern)), None
        )


class OptionSource:
    """The options of an app's tasks."""

    def __init__(self, app: Celery, client: Callable[[], ParsyncClient]) -> None:
        self._app = app
        self._client = client
        self._known: dict[str, tuple[Options | None, float]] = {}
        self._away = -math.inf, ""
        self._unrouted: set[str] = set()

    @cached_property
    def rules(self) -> Rules:
        """The rules [place] of the settings file, read at the first use."""
        return Rules(load_rules())

    def of(self, name: str, carried: object, call: object) -> dict[str, object] | None:
        """Return the options of a task that parsync places, None for the broker.

        The options of the call take precedence over the options of an earlier attempt (`carried` in
        its headers). Then come the options that the task declares, then the rule for its name.
        Raises InvalidInput.
        """
        declared = self._own(name, call)
        rule = self.rules.of(name)
        placed = rule if declared is None else declared
        goes_to_broker = carried is False or (not carried and placed in (None, False))
        if call is False or (call is None and goes_to_broker):
            return None
        if has_own_strategy(self._app._tasks.get(name)):
            raise InvalidInput(f"task {name} {_UNPLACED}")
        merged: dict[str, object] = {}
        earlier = carried.get("options") if isinstance(carried, Mapping) else None
        for options in (rule, declared, earlier, call):
            if options is None or isinstance(options, bool):
                continue
            if not isinstance(options, Mapping):
                raise InvalidInput(
                    f"parsync={shown(options)} of task {name} is not valid: it must be a dict, "
                    "True or False"
                )
            merged.update(options)
        is_placed_retry = isinstance(carried, Mapping) and carried and earlier is None
        if is_placed_retry and call is None:
            merged[AS_RECORDED] = True
        return merged

    def fill(self, options: Options, arguments: Arguments) -> Options:
        """Return the options of a call with its arguments in the tenant, the limits and the key.

        The names of the positional parameters are those of the task in this app. For a task that
        this app does not have, they are those that the workers' app tells. Raises InvalidInput.
        """
        if not parameters_in(options):
            return options
        return fill(options, arguments._replace(names=self._positional(arguments.task)))

    def _positional(self, name: str) -> Sequence[str]:
        """Return the names of a task's positional parameters, () if nobody tells them."""
        tasks = self._own_tasks()
        if name in tasks:
            return positional_parameters(tasks[name])
        declared = self._declared_elsewhere(name) or {}
        return cast(Sequence[str], declared.get("parameters", ()))

    def _own_tasks(self) -> Mapping[str, Task]:
        """Return the tasks of this app as far as they are known without finalizing it."""
        app = self._app
        tasks: Mapping[str, Task] = app.tasks if app.autofinalize or app.finalized else app._tasks
        return tasks

    def _own(self, name: str, call: object) -> object:
        """Return the `parsync` option that a task declares in this app.

        For a task that this app does not have, return the options that the workers' app declares.
        This app's tasks are known only when Celery has finalized the app.
        """
        tasks = self._own_tasks()
        if name in tasks or call is False:
            return getattr(tasks.get(name), "parsync", None)
        declared = self._declared_elsewhere(name)
        if declared is None or (call is None and not declared.get("place", True)):
            return None
        options = {
            option: value for option, value in declared.items() if option not in OF_DECLARATION
        }
        return {**options, ROUTED_QUEUE: declared["queue"]} if declared.get("queue") else options

    def _declared_elsewhere(self, name: str) -> Options | None:
        """Return what the workers' app declares for a task that this process has not imported.

        An answer is used again for KNOWN_S seconds, and longer if the server cannot be reached
        then. The server is asked once, without retries. Raises Unreachable if the server does not
        answer and there is no earlier answer.
        """
        now_s = time.monotonic()
        declared, asked_s = self._known.get(name, (None, -math.inf))
        if now_s - asked_s < KNOWN_S:
            return declared
        if now_s - self._away[0] >= KNOWN_S:
            try:
                declared = self._client().declared([name], iter(())).get(name)
                self._known[name] = declared, now_s
                return declared
            except ServerUnreachable as error:
                self._away = time.monotonic(), str(error)
        if name not in self._known:
            raise Unreachable(
                f"{self._away[1]}; it knows whether task {name} is placed by parsync, which this "
                "process has not imported; parsync=False sends it to the broker"
            )
        return declared

    def check(self) -> None:
        """Check the options that each task declares; raises InvalidInput with its name."""
        for name in self._app.tasks:
            try:
                options = self.of(name, None, None) or {}
                TaskOptions.of(with_samples(options))
                check_parameters(options, self._app.tasks[name])
            except InvalidInput as error:
                raise InvalidInput(f"task {name}: {error}") from None

    def known_tasks(self) -> KnownTasks:
        """Return the tasks of this app and the options that each declares.

        Submits by task name need them. Raises InvalidInput.
        """
        names = [name for name, task in self._app.tasks.items() if _may_be_placed(name, task)]
        declarations = {name: self._declaration(name) for name in names}
        return KnownTasks.of(
            {
                name: options
                for name, options in declarations.items()
                if options or is_name("task name", name)
            },
            self._app.parsync.limits,
            self._app.main or "__main__",
        )

    def as_declared(
        self, carried: Options, arguments: Arguments
    ) -> tuple[dict[str, object], str] | None:
        """Return the options and the queue of a task with the options that its app declares.

        The task was submitted by name before any worker knew it. The options that the caller gave
        (`carried`) take precedence over the options that this app declares. None if the options do
        not change.
        """
        declared = {
            k: v
            for k, v in (self._declaration(arguments.task) or {}).items()
            if k not in ("place", "expires", "parameters") and carried.get(k) is None
        }
        merged = {**self.fill(declared, arguments), **carried}
        queue = str(merged.pop("queue", ""))
        carried_queue = str(carried.get("queue", ""))
        before = {option: value for option, value in carried.items() if option != "queue"}
        if TaskOptions.of(merged, queue) == TaskOptions.of(before, carried_queue):
            return None
        return merged, queue

    def _declaration(self, name: str) -> dict[str, object] | None:
        """Return a task's options, with the queue and priority that Celery would give it.

        None if the task has no options.
        """
        options = self.of(name, None, None)
        task = self._app.tasks[name]
        routed = self._route(name, dict(task._get_exec_options()))
        queue = routed.get("queue")
        declaration = dict(options or {})
        if (priority := routed.get("priority")) is not None:
            declaration.setdefault("priority", celery_priority(priority))
        if queue is not None and queue.name != self._app.conf.task_default_queue:
            declaration["queue"] = queue.name
        if parameters_in(options):
            declaration["parameters"] = positional_parameters(task)
        if options is None:
            return {**declaration, "place": False} if declaration else None
        return declaration

    # Any: Celery's options of a call, each of its own type
    def _route(self, name: str, options: dict[str, Any]) -> Mapping[str, Any]:
        """Return how Celery routes a task, whatever its arguments are.

        There are no arguments here. A router is the app's own code, and may read arguments: then
        the route has no queue.
        """
        try:
            routed: Mapping[str, Any] = self._app.amqp.router.route(options, name)  # Any: as above
            return routed
        except Exception as error:
            if name not in self._unrouted:
                self._unrouted.add(name)
                log.warning(
                    "task %s has no queue when it is submitted by name only: its route cannot be "
                    "found without arguments (%s: %s)",
                    name,
                    type(error).__name__,
                    error,
                )
            return {"priority": options.get("priority")}


def positional_parameters(task: Task) -> list[str]:
    """Return the names of the parameters that a call of a task may give by position."""
    return [
        parameter.name
        for parameter in signature(task.run).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def check_parameters(options: Options, task: Task) -> None:
    """Raise InvalidInput if the tenant, a limit or the key names no parameter of a task."""
    parameters = signature(task.run).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in parameters_in(options):
        if name not in parameters:
            raise unknown_option("parameter", name, parameters)


def has_own_strategy(task: object) -> bool:
    """Return True if a task, or a class of tasks, has a Strategy of its own.

    A worker runs a task by its Strategy.
    """
    if task is None:
        return False
    kind = task if isinstance(task, type) else type(task)
    strategy = getattr(task, "Strategy", Task.Strategy)
    return getattr(kind, "start_strategy", Task.start_strategy) is not Task.start_strategy or (
        symbol_by_name(strategy) is not symbol_by_name(Task.Strategy)
    )


def _may_be_placed(name: str, task: Task) -> bool:
    return (not name.startswith("celery.") or name in _MAPS) and not has_own_strategy(task)


def check_declarations(app: Celery) -> None:
    """Have `app.task` check the options of a declaration.

    A worker would check the declarations at its start. A misspelt `parsync` is warned of.
    """
    celery_task = app.task
    if getattr(celery_task, "of_parsync", False):
        return

    @wraps(celery_task)
    def task(*args: object, **options: object) -> object:
        _check_declared(
            options.get(_PARSYNC), lambda: options.get("base") or symbol_by_name(app.task_cls)
        )
        warn_of_misspelt(options, stacklevel=2)
        return celery_task(*args, **options)

    task.of_parsync = True  # type: ignore[attr-defined] # functions take any attribute
    app.task = task


def _check_declared(declared: object, base_of: Callable[[], object]) -> None:
    """Check what a declaration says; raises InvalidInput.

    base_of: returns the class of the task; it may import the app's modules.
    """
    if declared is None or isinstance(declared, bool):
        options: Mapping[str, object] = {}
    elif isinstance(declared, Mapping):
        options = declared
    else:
        raise InvalidInput(
            f"parsync={shown(declared)} is not valid: it must be a dict, True or False"
        )
    try:
        TaskOptions.of(with_samples(options))
    except InvalidInput as error:
        raise InvalidInput(f"parsync={shown(declared)} is not valid: {error}") from None
    if declared not in (None, False) and has_own_strategy(base := base_of()):
        raise InvalidInput(f"a task of {getattr(base, '__qualname__', base)} {_UNPLACED}")


def warn_of_misspelt(options: Mapping[str, object], stacklevel: int) -> None:
    """Warn of an option that is nearly `parsync`.

    The option may be an attribute of the task, or the app's own option. stacklevel: as
    `warnings.warn` takes it, for the caller.
    """
    for name in options:
        if close_to(name, (_PARSYNC,), VERY_CLOSE):
            value = shown(options[name])
            text = f"{name}={value} means nothing to parsync: did you mean parsync={value}?"
            warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)


def refuse_options_beside(name: str, options: Mapping[str, object]) -> None:
    """Raise InvalidInput if a call has an option that belongs into `parsync={...}`."""
    for option in options:
        if option in _OF_OURS:
            raise InvalidInput(
                f"{option}={shown(options[option])} in a call of task {name} is not valid: "
                f"it belongs into parsync={{{option!r}: ...}}"
            )
