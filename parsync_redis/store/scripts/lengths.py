"""The table of how long each argument of a script may be, by name, for scripts and for Python.

While a script runs, its server does nothing else, so a long text costs everybody's time. The loader
writes a check of each length into every script (header.py). A name that this table lacks is an
error when the script is loaded, so no script can forget the check.

New values of the state are short. Values that processes read from the state and give back (ids,
kinds, places) may be damaged. Such values may be as long as a message, so that a script can repair
them. So every Lua pattern takes linear time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...errors import BrokenContract, InvalidInput
from ...model.ids import MAX_ENCODED_ID
from ...model.limits import MAX_BATCH, MAX_KINDS_BYTES, MAX_MESSAGE, MAX_SLOTS, MAX_WORDS
from ...model.needs import MAX_TEXT
from ...model.octaves import TOP_NAMES
from ...model.policy_reader import MAX_DOCUMENT_BYTES
from ...model.times import CLASS

MAX_ROWS: Final = 2 * MAX_BATCH
"""Maximum number of rows in one call."""

MAX_PROSE_BYTES: Final = 4096
"""Bytes of a text for people: why a task waits, ended or went back. `cut` shortens such a text."""

_NUMBER_BYTES: Final = 32
_NAME_BYTES: Final = 255
# slots, amounts and labels, and a Celery queue
_NEEDS_BYTES: Final = 2 * 16 + MAX_WORDS * 128 + MAX_ENCODED_ID + 16
_SEAT_BYTES: Final = 128 + 6  # NODE/SLOT

_NUMBER_ARGUMENTS: Final = (
    "all at_most bin count cursor delay_ms epoch extras failed half_life_ms held inbox inc keep_s "
    "kept known_inc length level limit max_starts most moved over partition partitions "
    "retention_s room runs score share shards since slots usual version work"
)
_LENGTHS: Final[Mapping[str, int]] = {
    **dict.fromkeys(_NUMBER_ARGUMENTS.split(), _NUMBER_BYTES),
    **dict.fromkeys(("how", "state", "stay", "type", "field", "waits", "word", "digest"), 64),
    **dict.fromkeys(("name", "node", "scheduler", "waiter", "channel"), _NAME_BYTES),
    "account": 2 * MAX_PROSE_BYTES,
    **dict.fromkeys(("why", "outcome", "note", "value", "apps"), MAX_PROSE_BYTES),
    **dict.fromkeys(("attempt", "id", "kind", "run", "text"), MAX_MESSAGE),
    "bits": 8 * MAX_SLOTS,
    "by": _NAME_BYTES,
    "changes": MAX_PROSE_BYTES,
    "entry": 8192,
    "history": 64 * 2**10,
    "labels": MAX_TEXT,
    "lost": _NAME_BYTES + _NUMBER_BYTES,
    "message": MAX_MESSAGE,
    "capacity": MAX_TEXT,
    "offer": MAX_TEXT,
    "options": 1000,
    "salt": 160,
    "seal": 200,
    "seat": _SEAT_BYTES,
    "seats": _SEAT_BYTES * MAX_SLOTS,
    "seen": MAX_PROSE_BYTES,
    "seen_leader": _NAME_BYTES + _NUMBER_BYTES,
    "tasks": MAX_MESSAGE,
    "tenant": MAX_MESSAGE,
    "what": MAX_KINDS_BYTES,
}
_LENGTHS_BY_VERB: Final[Mapping[tuple[str, str], int]] = {
    ("allot", "account"): _NAME_BYTES,
    ("allot", "next"): _NUMBER_BYTES,
    ("allot", "text"): MAX_PROSE_BYTES,
    ("set_node", "note"): 2 * MAX_TEXT + 64,  # a score, a capacity and an offer
    ("set_policy", "account"): _NAME_BYTES,
    ("set_policy", "text"): MAX_PROSE_BYTES,
    ("submit", "id"): MAX_ENCODED_ID,
    ("submit", "kind"): 8,  # the number of a line of `what`
    # task, attempt, node, slots, amounts
    ("commit", "text"): MAX_ENCODED_ID + 300 + 64 + 5 * MAX_SLOTS + _NEEDS_BYTES,
    ("learn_times", "name"): _NAME_BYTES + 1 + 4 * CLASS,  # or a name and a node class
    ("learn_times", "text"): MAX_PROSE_BYTES,
    ("look_over", "what"): MAX_MESSAGE,  # a kind as the key has it, perhaps damaged
    ("note_choices", "text"): MAX_PROSE_BYTES,
    ("renew_scheduler", "value"): TOP_NAMES
    * (_NAME_BYTES + 512),  # the longest is of waits by name
    ("write_policy", "text"): MAX_DOCUMENT_BYTES,
}


def limit_of(verb: str, name: str) -> int:
    """Return how many bytes an argument of a script may have.

    Raises BrokenContract for a name without a limit.
    """
    limit = _LENGTHS_BY_VERB.get((verb, name)) or _LENGTHS.get(name)
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

    limits: bytes by name.
    columns: (name, the values of all rows).
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
    """Return a text for people, shortened if it is longer than a script takes."""
    return (
        text
        if len(text) <= MAX_PROSE_BYTES // 4 - 64
        else f"{text[: MAX_PROSE_BYTES // 4 - 67]}..."
    )


def _size(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) else value.encode(errors="surrogatepass"))
