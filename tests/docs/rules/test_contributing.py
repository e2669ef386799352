"""The check-lists of CONTRIBUTING.md name files and tests that exist, and hold where no other test
does.
"""

import re

from parsync_redis.model.node import NodeState
from parsync_redis.model.options import STORED as STORED_OPTIONS
from parsync_redis.model.task import StoredState, TaskState
from tests.kit import REPO
from tests.kit.documents import Document, tables
from tests.kit.offenders import none_wrong

TEXT = Document("CONTRIBUTING.md").text
STORED = set(StoredState) - {StoredState.GONE}


def test_each_file_exists():
    names = set(re.findall(r"`([\w.]+/[\w./]*)`", TEXT))
    assert len(names) > 20
    templates = {name for name in names if "NNNN" in name or "VERB" in name}
    none_wrong(
        "a named file exists",
        sorted(name for name in names - templates if not (REPO / name).exists()),
    )


def test_each_test_exists():
    names = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT))
    assert len(names) > 20
    texts = {path: (REPO / path).read_text(encoding="utf-8") for path, _ in names}
    missing = [
        name
        for name in sorted(names)
        if not re.search(rf"^def {name[1]}\(", texts[name[0]], re.MULTILINE)
    ]
    none_wrong("a named test exists", missing)


def test_each_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT + Document("SECURITY.md").text)
    assert links
    none_wrong("a link leads to a file", [link for link in links if not (REPO / link).exists()])


def test_the_page_of_keys_has_every_state():
    rows = {tuple(row[0].split(", ")) for row in tables(Document("docs/keys.md").text)}
    assert {state for words in rows if STORED.issuperset(words) for state in words} == STORED


def test_the_glossary_has_every_state():
    rows = {row[0]: row[1] for row in tables(Document("docs/glossary.md").text)}
    for word, states in (
        ("state", TaskState),
        ("stored state", StoredState),
        ("state of a node", NodeState),
    ):
        assert set(rows[word].partition(": ")[2].split(", ")) == set(states), word


def test_the_page_of_keys_has_every_stored_option():
    """The page has the stored options of a task's line; a successor has the same options."""
    head, *rows = (row for row in tables(Document("docs/keys.md").text) if len(row) == 3)
    assert head[0] == "word of the line"
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[2])} >= set(STORED_OPTIONS)
