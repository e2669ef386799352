"""The split of the tests into `make test` and the others: each behaviour on a stack has
its story.
"""

import re

import pytest

from tests.kit import REPO, TESTS
from tests.tiers import (
    FIRST,
    LONG,
    NO_STORY,
    ON_REDIS_CLUSTER,
    STORIES,
    is_on_redis_cluster,
    left_out,
)

FILES = [*TESTS.rglob("test_*.py"), *(REPO / "lab/tests").rglob("test_*.py")]
STACK = re.compile(r"LocalStack\(|\bnew_rig\b|\bSite\(")
"""Words in the text of a test file that starts schedulers or workers."""
NO_STACK = {"unit/test_tiers.py", "unit/test_stack.py"}


def texts() -> dict[str, str]:
    """Return the text of each test file, by the name that tests/tiers.py gives it."""
    paths = {file.relative_to(REPO).as_posix().removeprefix("tests/"): file for file in FILES}
    return {name: file.read_text(encoding="utf-8") for name, file in paths.items()}


def test_each_file_that_starts_a_stack_has_a_story_or_names_the_file_that_covers_it():
    serial = {file for file, text in texts().items() if "pytest.mark.serial" in text} - NO_STACK
    assert serial == STORIES.keys() | NO_STORY.keys(), "name its story in tests/tiers.py"
    assert not STORIES.keys() & NO_STORY.keys()
    told = {file for text in NO_STORY.values() for file in re.findall(r"[\w/]+\.py", text)}
    assert told <= texts().keys()


def test_tests_that_start_a_stack_are_marked():
    unmarked = [
        file
        for file, text in texts().items()
        if STACK.search(text) and "pytest.mark.serial" not in text
    ]
    assert sorted({*unmarked} - NO_STACK) == [], "mark it with pytest.mark.serial"


@pytest.mark.parametrize("tier", [STORIES, LONG, FIRST], ids=["stories", "long", "first"])
def test_each_name_is_a_test(tier):
    files = texts()
    missing = [
        (file, name)
        for file in tier
        for name in tier[file]
        if f"def {name}(" not in files.get(file, "")
    ]
    assert not missing


def test_tests_of_the_shared_stack_also_run_on_a_redis_cluster():
    shared = {file for file, text in texts().items() if "new_rig" in text} - NO_STACK
    missing = [file for file in sorted(shared) if not is_on_redis_cluster(file)]
    assert missing == [], "add it to ON_REDIS_CLUSTER"
    assert [name for name in ON_REDIS_CLUSTER if not (TESTS / name).exists()] == []


def test_make_test_names_the_targets_with_the_other_tests():
    assert any("make test-all" in line for line in left_out(quick=True))
    assert not any("make test-all" in line for line in left_out(quick=False))
