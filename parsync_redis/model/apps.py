"""The tasks that a worker's app knows, the options that each declares, and the app's limits.

Workers of one app know the same tasks. So this text is stored once, under its digest, and a node's
offer has only the digest, as a reserved label. The text of a digest never changes: a process reads
it once.

    proj.ping
    proj.train {"resources": {"gpu": 1}}
     @shop
     stripe units=5

An app that declares limits has lines that begin with a space: the app's name, and each limit with
its ceiling. The script `offer` reads the limits.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, unquote

from .account_line import Ceiling
from .ids import check_name
from .needs import QUEUE_LABEL, Resources, queue_label, without
from .policy import LimitEntry
from .text import DECLARED

TASKS_LABEL: Final = "celery.tasks"
"""The reserved label of an offer with the digest of the tasks that its worker knows."""


@dataclass(frozen=True)
class KnownTasks:
    """The tasks of one app.

    text: a line per task with its name and its declared options, and a line per limit, with a line
    break before and after each line.
    """

    text: str

    @classmethod
    def of(
        cls,
        declared: Mapping[str, Mapping[str, Any] | None],
        limits: Mapping[str, LimitEntry] = MappingProxyType({}),
        app: str = "",
    ) -> "KnownTasks":
        """Write {name: declared options or None}; raises InvalidInput for a bad name.

        limits: what the app declares. app: its name, for people.
        """
        named = [
            (check_name("task name", name), _text(options))
            for name, options in sorted(declared.items())
        ]
        lines = [DECLARED.write(task=name, options=options) for name, options in named]
        lines += [f" @{quote(app)}"] if limits else []
        lines += [f" {name} {entry.ceiling}" for name, entry in sorted(limits.items())]
        return cls("".join("\n" + line for line in lines) + "\n")

    @cached_property
    def digest(self) -> str:
        """Return the digest of the text, 16 hexadecimal digits.

        Offers name the text by its digest.
        """
        return sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def declared(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Return {task name: declared options}.

        A line that cannot be read is left out. Options that cannot be read are None.
        """
        options_by_task: dict[str, Mapping[str, Any] | None] = {}
        for line in self.text.splitlines():
            if line.startswith(" "):
                continue
            if fields := DECLARED.read(line):
                options_by_task[fields["task"]] = _options(fields["options"])
        return options_by_task

    @property
    def app(self) -> str:
        """Return the name of an app that declares limits, '' for another app."""
        name = self.text.partition("\n @")[2].partition("\n")[0]
        return unquote(name)

    @cached_property
    def limits(self) -> Mapping[str, LimitEntry]:
        """Return the limits that the app declares; a line that cannot be read is left out."""
        limits: dict[str, LimitEntry] = {}
        for line in self.text.splitlines():
            name, _, ceiling = line[1:].partition(" ")
            entry = Ceiling.of(ceiling).limit_entry if line.startswith(" ") else None
            if entry is not None:
                limits[name] = entry
        return limits


def _text(options: Mapping[str, Any] | None) -> str:
    return "" if options is None else json.dumps(options, sort_keys=True, default=_plain)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _options(text: str) -> Mapping[str, Any] | None:
    try:
        options = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return options if isinstance(options, dict) else None


def digest_of(offer: Resources) -> str:
    """Return the digest of the tasks that a node's worker knows.

    '' is a node without a digest: it takes tasks of any name.
    """
    return next((value for name, value in offer.labels if name == TASKS_LABEL), "")


def offer_with(offer: Resources, tasks: KnownTasks, queues: Iterable[str] = ()) -> Resources:
    """Return an offer with its reserved labels: the worker's known tasks and its Celery queues."""
    bare = without(offer, TASKS_LABEL, QUEUE_LABEL)
    reserved = [(TASKS_LABEL, tasks.digest), *map(queue_label, queues)]
    return Resources.made(bare.slots, bare.amounts, [*bare.labels, *reserved])
