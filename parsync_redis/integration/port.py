"""`ParsyncPort`: what Celery's components and producers need of an app's Parsync."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from celery import Celery

from ..model.parameters import Arguments
from .background import Background

Options = Mapping[str, object]
"""The options of one task, as `parsync={...}` has them."""


class ParsyncPort(Protocol):
    """The Parsync of a Celery app."""

    app: Celery
    background: Background

    def options_of(self, name: str, carried: object, call: object) -> Options | None:
        """Return the options of a task that parsync places, None if it goes to the broker."""

    def fill(self, options: Options, arguments: Arguments) -> Options:
        """Return the options with arguments of a call in the tenant, the limits and the key."""

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
        """Submit a message that Celery made."""

    def revoke(self, task_id: object, terminate: bool, signal: object) -> bool:
        """Cancel tasks; return True if all of them were parsync's."""

    def purge(self) -> int:
        """Cancel the tasks of this app that wait; return how many."""
