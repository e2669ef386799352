"""The bound on the number of values that a label of a metric has."""

from collections.abc import Callable, Mapping
from typing import Final

OTHER_GROUP: Final = "other"


def top(sizes: Mapping[str, float], most: int) -> Callable[[str], str]:
    """Return the function word -> group.

    The `most` words with the largest sizes are their own groups; all other words are `other`.
    """
    largest = frozenset(sorted(sizes, key=lambda word: (-sizes[word], word))[:most])
    return lambda word: word if word in largest else OTHER_GROUP
