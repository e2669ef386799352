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
"""The reserved label of an offer that says which tasks its worker knows, by their digest."""


@dataclass(frozen=True)
class KnownTasks:
    """The tasks of one app; `text` has a line a task, its name and what it declares, between line
    breaks.
    """

    text: str

    @classmethod
    def of(cls, declared: Mapping[str, Mapping[str, Any] | None]) -> "KnownTasks":
        """Write the text of name -> declared options, None for none; raises InvalidInput for a bad
        name.
        """
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
        """The name of the text in offers: 16 hexadecimal digits."""
        return sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def declared(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Task name -> declared options; lines that cannot be read are left out, options that
        cannot are None.
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
    """Return the digest of the tasks that a node's worker knows; '' for a node without one, which
    takes all tasks.
    """
    return next((value for name, value in offer.labels if name == TASKS_LABEL), "")


def offer_with(offer: Resources, tasks: KnownTasks, queues: Iterable[str] = ()) -> Resources:
    """Return an offer with the reserved labels: the tasks that the node's worker knows and the
    queues it consumes.
    """
    bare = without(offer, TASKS_LABEL, QUEUE_LABEL)
    reserved = [(TASKS_LABEL, tasks.digest), *map(queue_label, queues)]
    return Resources.made(bare.slots, bare.amounts, [*bare.labels, *reserved])
