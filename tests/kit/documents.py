"""Reads the documents for the tests that keep them true, and writes what is real into them when
asked to.

PARSYNC_TEST_WRITE_DOCS=1 makes these tests put what they saw into the documents, instead of
comparing.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from parsync_redis.cli.command_table import all_commands, full_words
from tests.kit import REPO

WRITE = os.environ.get("PARSYNC_TEST_WRITE_DOCS") == "1"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the heading that it stands under, and where it is in
    the document.
    """

    language: str
    text: str
    heading: str
    span: tuple[int, int]


class Document:
    """A document by its path from the root of the checkout."""

    def __init__(self, path: str) -> None:
        self.path = REPO / path
        self.text = self.path.read_text(encoding="utf-8")

    def blocks(self, language: str = "") -> list[Block]:
        """Return the fenced blocks of the document, of one language or all."""
        return [block for block in self._blocks() if language in ("", block.language)]

    def _blocks(self) -> Iterator[Block]:
        for match in _FENCE.finditer(self.text):
            headings = re.findall(
                r"^#+ (.*)$", _FENCE.sub("", self.text[: match.start()]), re.MULTILINE
            )
            yield Block(match[1], match[2], headings[-1] if headings else "", match.span(2))

    def replace(self, blocks: list[tuple[Block, str]]) -> None:
        """Write other texts into some of its blocks."""
        for block, text in sorted(blocks, key=lambda pair: -pair[0].span[0]):
            self.text = self.text[: block.span[0]] + text + self.text[block.span[1] :]
        self.path.write_text(self.text, encoding="utf-8")


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the full name of the command that a command line of parsync runs, and its other words.

    The name is '' if there is no such command. A group (`parsync tasks --help`) is its first verb.
    """
    words = full_words([word for word in words if word != "--help"])
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in all_commands():
            return name, words[length:]
    return "", words


def tables(text: str) -> Iterator[list[str]]:
    """Yield the rows of every table, as their cells; without the rulers."""
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]
