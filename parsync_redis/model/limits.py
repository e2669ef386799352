"""The limits, in one place.

A value over a limit is refused before it is sent, with an error that names the limit.
"""

from typing import Final

MAX_MESSAGE: Final = 2 * 2**20
"""Bytes of a task's message with all that Celery adds; Redis keeps the message with the record."""

MAX_SLOTS: Final = 10_000
"""Slots of a node or a task."""

MAX_WORDS: Final = 64
"""The number of resources and labels of a node or a task; scripts loop over them."""

MAX_DEPTH: Final = 100
"""Levels of nested lists and mappings in a task's arguments; readers fail on more levels."""

MAX_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of messages in one request; larger batches become several requests."""

MAX_CHOICES: Final = 5_000
"""Recorded choices in a generation of a shard; there are two generations."""

MAX_KINDS_BYTES: Final = 256 * 2**10
"""Bytes of the kinds in one call of submit: the script reads each word of them."""

MAX_BATCH: Final = 500
"""Tasks, claims or leases in one call, so that no call delays other calls for long."""
