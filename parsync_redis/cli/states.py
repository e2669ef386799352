"""The words for states of tasks, on the command line and in the API."""

from collections.abc import Mapping
from typing import Final

from ..errors import InvalidInput
from ..model.task import FINAL, TaskState
from ..store.reads.tasks import ANY

ENDED_WORD: Final = "ended"
ANY_WORD: Final = "any"
STATE_WORDS: Final = (
    *(state.value for state in TaskState if state is not TaskState.GONE),
    ENDED_WORD,
    ANY_WORD,
)
_STATES_BY_GROUP: Final[Mapping[str, frozenset[TaskState]]] = {ENDED_WORD: FINAL, ANY_WORD: ANY}


def parse_states(word: str) -> frozenset[TaskState]:
    """Return the states of a word: a state, `ended` or `any`; raises InvalidInput."""
    if word not in STATE_WORDS:
        raise InvalidInput(f"--state {word!r} is not known: known are {', '.join(STATE_WORDS)}")
    if word in _STATES_BY_GROUP:
        return _STATES_BY_GROUP[word]
    return frozenset((TaskState(word),))
