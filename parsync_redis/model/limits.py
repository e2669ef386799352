"""The limits, in one place.

A value over a limit is refused before it is sent, with an error that names the limit.
"""

from typing import Final

MAX_MESSAGE: Final = 2 * 2**20
"""Bytes of a task's message, with all that Celery adds: Redis keeps it in memory until the task's
record expires.
"""

MAX_SLOTS: Final = 10_000
"""Slots of a node, and of a task."""

MAX_WORDS: Final = 64
"""Resources and labels together, of a node or a task: scripts loop over them."""

MAX_DEPTH: Final = 100
"""Levels of lists and mappings in a task's arguments: deeper ones break their readers."""

MAX_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of messages in one request; more tasks go in several."""

MAX_CHOICES: Final = 5_000
"""Choices of schedulers in a generation of a shard; there are two generations."""

MAX_KINDS_BYTES: Final = 256 * 2**10
"""Bytes of the kinds in one call of submit: the script reads each word of them."""

MAX_BATCH: Final = 500
"""Tasks, claims or leases in one call: a call stays short, and others wait no longer for the
server.
"""
