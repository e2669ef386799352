"""Bound the number of values that a label of a metric has."""

from collections.abc import Callable, Mapping
from typing import Final

OTHER: Final = "other"


def top(sizes: Mapping[str, float], most: int) -> Callable[[str], str]:
    """Return what tells the group of a word: itself if it is one of the largest `most`, else
    `other`.
    """
    kept = frozenset(sorted(sizes, key=lambda word: (-sizes[word], word))[:most])
    return lambda word: word if word in kept else OTHER
