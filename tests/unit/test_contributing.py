"""The check-lists of CONTRIBUTING.md name files and tests that exist, and hold where no other test does."""

import re

import pytest

from parsync_redis.model.options import STORED as STORED_OPTIONS
from parsync_redis.model.task import TaskState
from tests.documents import ROOT, Document, tables

TEXT = Document("CONTRIBUTING.md").text
STORED = set(TaskState) - {TaskState.GONE}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w.]+/[\w./]*)`", TEXT))))
def test_each_file_exists(name):
    assert "NNNN" in name or "VERB" in name or (ROOT / name).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", TEXT))))
def test_each_test_exists(name):
    path, _, test = name.partition("::")
    assert re.search(rf"^def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", TEXT + Document("SECURITY.md").text))
def test_each_link_leads_to_a_file(link):
    assert (ROOT / link).exists()


def test_the_page_of_keys_has_every_state():
    rows = {tuple(row[0].split(", ")) for row in tables(Document("docs/keys.md").text)}
    assert {state for words in rows if STORED.issuperset(words) for state in words} == STORED


def test_the_glossary_has_every_state():
    (row,) = (row for row in tables(Document("docs/glossary.md").text) if row[0] == "state")
    assert set(row[1].partition(": ")[2].split(", ")) == set(TaskState)


def test_the_page_of_keys_has_every_stored_option():
    """Of the words of a task's line; a successor has the same."""
    head, *rows = (row for row in tables(Document("docs/keys.md").text) if len(row) == 3)
    assert head[0] == "word of the line"
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[2])} >= set(STORED_OPTIONS)
