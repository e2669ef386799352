"""The words for states of tasks on the command line and in the API."""

from collections.abc import Mapping
from typing import Final

from ..errors import InvalidInput
from ..model.task import FINAL, TaskState
from ..store.reads.tasks import ANY

ENDED: Final = "ended"
EVERY: Final = "any"
STATE_WORDS: Final = (
    *(state.value for state in TaskState if state is not TaskState.GONE),
    ENDED,
    EVERY,
)
_STATES: Final[Mapping[str, frozenset[TaskState]]] = {ENDED: FINAL, EVERY: ANY}


def parse_states(word: str) -> frozenset[TaskState]:
    """Return the states that a word stands for; raises InvalidInput."""
    if word not in STATE_WORDS:
        raise InvalidInput(f"--state {word!r} is not known: known are {', '.join(STATE_WORDS)}")
    return _STATES[word] if word in _STATES else frozenset((TaskState(word),))
