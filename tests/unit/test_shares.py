"""One worker of pytest-xdist gets a file that starts processes, or a single test, at once."""

import pytest

from tests.kit import REPO
from tests.kit.shares import scope_of


@pytest.mark.parametrize(
    "file", ["system/damage/test_damage.py", "parity/test_prefork.py", "store/lua/test_patterns.py"]
)
def test_a_file_of_processes_goes_to_one_worker(file: str) -> None:
    assert scope_of(f"tests/{file}::Class::test_a[x::y]", REPO) == f"tests/{file}"


def test_tests_without_a_shared_stack_are_dealt_singly() -> None:
    assert scope_of(id := "tests/unit/test_ids.py::test_a[x::y]", REPO) == id
