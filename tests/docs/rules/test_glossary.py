"""docs/glossary.md: a word has one place, and what a row names in the code exists."""

import re
from collections import Counter
from functools import cache

from tests.kit import REPO
from tests.kit.documents import Document, tables
from tests.kit.offenders import none_wrong

ROWS = [row for row in tables(Document("docs/glossary.md").text) if row[0] != "word"]


@cache
def names():
    """Return every class, function and constant that a module of a package defines."""
    files = [*(REPO / "parsync_redis").rglob("*.py"), *(REPO / "lab/parsync_lab").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return {
        name
        for text in texts
        for name in re.findall(r"^(?:class |def )?(\w+)(?=[\[:(]| =)", text, re.MULTILINE)
    }


def test_each_word_is_defined_in_one_place():
    """A word has a row, or stands in italics in the row of another word; never both."""
    in_rows = [re.findall(r"\*([^*]+)\*", meaning) for _, meaning, _ in ROWS]
    words = Counter([row[0].lower() for row in ROWS])
    words.update(word.lower() for italics in in_rows for word in italics)
    none_wrong("a word has one place", [word for word, count in words.items() if count > 1])


def test_the_glossary_stays_short():
    assert len(ROWS) <= 110, "fold a word that is a part of another word into its row, in italics"


def test_each_name_in_a_glossary_row_exists():
    names_by_word = {word: re.findall(r"`([^`]+)`", where) for word, _, where in ROWS}
    none_wrong(
        "a row has a meaning and names code",
        [word for word, meaning, _ in ROWS if not meaning or not names_by_word[word]],
    )
    wrong = [
        f"{word}: {name}"
        for word, names in names_by_word.items()
        for name in names
        if not is_there(name)
    ]
    none_wrong("what a row names exists", wrong)


def is_there(name):
    """Return whether there is a file, or a class, function or constant, of this name."""
    if "/" in name:
        return (REPO / name).exists() or (REPO / "parsync_redis" / name).exists()
    return name in names()
