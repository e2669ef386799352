"""docs/glossary.md: a word has one row, and what a row names in the code exists."""

import re
from functools import cache

import pytest

from tests.documents import ROOT, Document, tables

ROWS = [row for row in tables(Document("docs/glossary.md").text) if row[0] != "word"]


@cache
def names():
    """Every class, function and constant that a module of the package defines."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "parsync_redis").rglob("*.py")]
    return {name for text in texts for name in re.findall(r"^(?:class |def )?(\w+)(?=[\[:(]| =)", text, re.MULTILINE)}


def test_each_word_has_one_row():
    words = [row[0].lower() for row in ROWS]
    assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_row_names_exists(row):
    _, meaning, where = row
    found = re.findall(r"`([^`]+)`", where)
    assert found
    assert meaning
    for name in found:
        if "/" in name:
            assert (ROOT / name).exists() or (ROOT / "parsync_redis" / name).exists(), name
        else:
            assert name in names(), name
