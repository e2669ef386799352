"""The parity suite on the pool threads."""

from collections.abc import Iterator

import pytest

from .case import Case
from .judge import Answers, check, selected, these
from .rig import running

pytestmark = pytest.mark.serial
POOL = "threads"


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """What both stacks answered to the cases that were selected."""
    with running(POOL, tmp_path_factory.mktemp(POOL)) as rig:
        found = rig.run(selected(request.session.items, __name__))
        assert not rig.held(), "slots are held after all cases have ended"
        yield found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", these(POOL), ids=lambda case: case.id)
def test_the_answer_is_plain_celerys(answers: Answers, case: Case) -> None:
    check(case, answers[case.id], POOL)
