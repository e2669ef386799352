"""How long each argument of a script may be, by its name: one table for the scripts and for Python.

A script runs alone on its server, so the time for one text is everybody's. The loader writes the
check into every script (header.py), and a name that this table lacks is an error when the script is
loaded. So no script can forget it. What enters the state is short. What processes read there and
give back, as ids, kinds and places, may be damaged: it may be as long as a message, so that it can
be repaired, and every pattern takes linear time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...errors import BrokenContract, InvalidInput
from ...model.ids import MAX_ENCODED_ID
from ...model.limits import MAX_BATCH, MAX_KINDS_BYTES, MAX_MESSAGE, MAX_SLOTS, MAX_WORDS
from ...model.named_times import TOP_NAMES
from ...model.needs import MAX_TEXT
from ...model.times import CLASS

MAX_ROWS: Final = 2 * MAX_BATCH
"""Rows of one call."""

PROSE: Final = 4096
"""Bytes of a text for people: why a task waits, ended or went back. Python cuts it (`cut`)."""

_NUMBER: Final = 32
_NAME: Final = 255
# slots, amounts and labels, and a Celery queue
_NEEDS: Final = 2 * 16 + MAX_WORDS * 128 + MAX_ENCODED_ID + 16
_SEAT: Final = 128 + 6  # NODE/SLOT

_NUMBERS: Final = (
    "all at_most bin count cursor delay_ms epoch extras failed held inbox inc keep_s kept "
    "known_inc length level limit "
    "max_starts most moved over partition partitions retention_s room runs score shards since "
    "slots usual version"
)
_LENGTHS: Final[Mapping[str, int]] = {
    **dict.fromkeys(_NUMBERS.split(), _NUMBER),
    **dict.fromkeys(("how", "state", "stay", "type", "field", "waits", "word", "digest"), 64),
    **dict.fromkeys(("name", "node", "scheduler", "waiter", "channel"), _NAME),
    **dict.fromkeys(("why", "outcome", "note", "value", "apps"), PROSE),
    **dict.fromkeys(("attempt", "id", "kind", "run", "text"), MAX_MESSAGE),
    "bits": 8 * MAX_SLOTS,
    "entry": 8192,
    "labels": MAX_TEXT,
    "lost": _NAME + _NUMBER,
    "message": MAX_MESSAGE,
    "offer": MAX_TEXT,
    "options": 1000,
    "salt": 160,
    "seat": _SEAT,
    "seats": _SEAT * MAX_SLOTS,
    "seen": PROSE,
    "seen_leader": _NAME + _NUMBER,
    "tasks": MAX_MESSAGE,
    "what": MAX_KINDS_BYTES,
}
_OF_VERB: Final[Mapping[tuple[str, str], int]] = {
    ("submit", "id"): MAX_ENCODED_ID,
    ("submit", "kind"): 8,  # the number of a line of `what`
    # task, attempt, node, slots, amounts
    ("commit", "text"): MAX_ENCODED_ID + 300 + 64 + 5 * MAX_SLOTS + _NEEDS,
    ("learn_times", "name"): _NAME + 1 + 4 * CLASS,  # or a name and a node class
    ("learn_times", "text"): PROSE,
    ("look_over", "what"): MAX_MESSAGE,  # a kind as it was found
    ("note_choices", "text"): PROSE,
    ("renew_scheduler", "value"): TOP_NAMES * (_NAME + 512),  # the longest is of waits by name
}


def limit_of(verb: str, name: str) -> int:
    """Return how many bytes an argument of a script may have; BrokenContract for a name that has no
    limit.
    """
    limit = _OF_VERB.get((verb, name)) or _LENGTHS.get(name)
    if limit is None:
        raise BrokenContract(
            f"lua: {verb}.lua has an argument {name}, which has no length in "
            "store/scripts/lengths.py"
        )
    return limit


def check_lengths(
    verb: str, limits: Mapping[str, int], columns: Iterable[tuple[str, Iterable[object]]]
) -> None:
    """Raise InvalidInput for a value that is longer than its limit.

    columns: name, and the values of all rows.
    """
    for name, values in columns:
        limit = limits[name]
        for value in values:
            if (
                isinstance(value, (str, bytes))
                and 4 * len(value) > limit
                and (size := _size(value)) > limit
            ):
                raise InvalidInput(
                    f"{name} of {verb} is too long: it has {size:,} bytes, {limit:,} bytes are "
                    "allowed"
                )


def cut(text: str) -> str:
    """Return a text for people, cut where it is longer than a script takes."""
    return text if len(text) <= PROSE // 4 - 64 else f"{text[: PROSE // 4 - 67]}..."


def _size(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) else value.encode(errors="surrogatepass"))
