"""The tasks that a worker's app knows, and the parsync options that each declares.

Workers of one app know the same tasks. So this text is stored once, under its digest, and a node's
offer has only the digest, as a reserved label. The text of a digest never changes: a process reads
it once.

    proj.ping
    proj.train {"resources": {"gpu": 1}}
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from .ids import check_name
from .needs import QUEUE_LABEL, Resources, queue_label, without
from .text import DECLARED

TASKS_LABEL: Final = "celery.tasks"
"""The reserved label of an offer with the digest of the tasks that its worker knows."""


@dataclass(frozen=True)
class KnownTasks:
    """The tasks of one app.

    text: a line per task with its name and its declared options, with a line break before and after
    each line.
    """

    text: str

    @classmethod
    def of(cls, declared: Mapping[str, Mapping[str, Any] | None]) -> "KnownTasks":
        """Write {name: declared options or None}; raises InvalidInput for a bad name."""
        named = [
            (check_name("task name", name), _text(options))
            for name, options in sorted(declared.items())
        ]
        return cls(
            "".join("\n" + DECLARED.write(task=name, options=options) for name, options in named)
            + "\n"
        )

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
            if fields := DECLARED.read(line):
                options_by_task[fields["task"]] = _options(fields["options"])
        return options_by_task


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
