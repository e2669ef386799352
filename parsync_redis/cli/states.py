"""The words for states of tasks on the command line and in the API."""

from collections.abc import Mapping
from typing import Final

from ..errors import InvalidInput
from ..model.task import FINAL, WAITING, TaskState
from ..store.reads.tasks import ANY, WAITING_STATES

ENDED: Final = "ended"
EVERY: Final = "any"
STATE_WORDS: Final = (
    WAITING,
    *(s.value for s in TaskState if s is not TaskState.GONE),
    ENDED,
    EVERY,
)
_STATES: Final[Mapping[str, frozenset[TaskState]]] = {
    WAITING: WAITING_STATES,
    ENDED: frozenset(FINAL),
    EVERY: ANY,
}


def parse_states(word: str) -> frozenset[TaskState]:
    """Return the states that a word stands for (waiting: pending and taken); raises
    InvalidInput.
    """
    if word not in STATE_WORDS:
        raise InvalidInput(f"--state {word!r} is not known: known are {', '.join(STATE_WORDS)}")
    return _STATES[word] if word in _STATES else frozenset((TaskState(word),))
