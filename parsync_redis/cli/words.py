"""Words of the command line that are filled in before typer reads them."""

from collections.abc import Sequence
from typing import Final

DEFAULT_WATCH_S: Final = "2"
"""Seconds between two drawings of `--watch` without a number."""


def fill_watch(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with a number behind each `--watch`."""
    filled: list[str] = []
    for position, word in enumerate(words):
        if word == "--":
            return [*filled, *words[position:]]
        filled.append(word)
        following = "".join(words[position + 1 : position + 2])
        if word == "--watch" and not following.replace(".", "", 1).isdigit():
            filled.append(DEFAULT_WATCH_S)
    return filled
