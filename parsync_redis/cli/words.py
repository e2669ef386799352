"""Words of the command line that are completed before typer reads them."""

from collections.abc import Sequence
from typing import Final

EVERY_S: Final = "2"
"""The seconds between two looks if `--watch` does not say."""


def fill_watch(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the number that `--watch` may do without."""
    found: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            return [*found, *words[at:]]
        found.append(word)
        if word == "--watch" and not (
            at + 1 < len(words) and words[at + 1].replace(".", "", 1).isdigit()
        ):
            found.append(EVERY_S)
    return found
