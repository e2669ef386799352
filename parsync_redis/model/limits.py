"""What is too much, in one place: each limit is refused with one error that names it, before anything is sent."""

from typing import Final

MAX_MESSAGE: Final = 2 * 2**20
"""Bytes of a task's message, with all that Celery adds: Redis keeps it in memory until the task's record expires."""

MAX_SLOTS: Final = 10_000
"""Slots of a node, and of a task."""

MAX_WORDS: Final = 64
"""Resources and labels together, of a node and of a task: scripts look through them."""

MAX_DEPTH: Final = 100
"""How deep lists and mappings may be nested in a task's arguments: deeper ones break those who read them."""

MAX_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of messages in one request; more tasks go in several."""

MAX_BATCH: Final = 500
"""Tasks, claims or leases in one call: a script's `unpack` must stay far below 8,000 values."""
