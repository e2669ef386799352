"""The parity suite on the pool threads."""

import pytest

from .case import Case
from .judge import Answers, check, these

pytestmark = pytest.mark.serial
POOL = "threads"


@pytest.mark.parametrize("case", these(POOL), ids=lambda case: case.id)
def test_the_answer_is_plain_celerys(answers: Answers, case: Case) -> None:
    check(case, answers[case.id], POOL)
