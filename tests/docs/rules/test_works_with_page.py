"""docs/works-with.md names the versions that are tried and tests that there are."""

import re

from tests.kit import REPO
from tests.kit.documents import Document, tables
from tests.kit.offenders import none_wrong
from tests.parity.works_with import LIBRARIES

REQUIREMENTS = (REPO / "tests/parity/works_with/requirements.txt").read_text(encoding="utf-8")
LOCK = (REPO / "requirements-dev.lock").read_text(encoding="utf-8")
PINS = {
    name.lower(): version
    for name, version in re.findall(r"^([\w-]+)==([^\s;]+)", LOCK + REQUIREMENTS, re.MULTILINE)
}
TESTS = (REPO / "tests/parity/works_with/test_works_with.py").read_text(encoding="utf-8")
ROWS = [*tables(Document("docs/works-with.md").text)]
TRIED = [row for row in ROWS if len(row) == 5 and row[0] != "library"]


def test_a_row_has_the_version_that_is_installed():
    none_wrong(
        "a version is tried", [row[:2] for row in TRIED if PINS.get(row[0].lower()) != row[1]]
    )


def test_each_library_that_the_tests_need_has_a_row_and_a_version():
    assert {*LIBRARIES.values()} <= {row[0] for row in TRIED}
    assert {name.lower() for name in LIBRARIES.values()} <= {
        line.partition("==")[0] for line in REQUIREMENTS.split()
    }


def test_a_row_names_its_tests():
    assert {len(row) for row in ROWS} == {4, 5}
    for row in ROWS:
        names = re.findall(r"`(test_\w+)`", row[-1])
        wrong = [name for name in names if f"def {name}(" not in TESTS]
        assert not wrong, row[0]
        assert names or row[-1] in ("test", "the same") or "`tests/" in row[-1], row[0]
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[-1])}
    assert {*re.findall(r"^def (test_\w+)\(", TESTS, re.MULTILINE)} == named, "each test has a row"
