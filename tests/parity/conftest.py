"""The answers of a pool's stacks, for the module of that pool: a module each, so that they run side
by side.
"""

from collections.abc import Iterator

import pytest

from .judge import Answers, selected
from .rig import running


@pytest.fixture(scope="module")
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Answers]:
    """Run the selected cases on both stacks of the module's POOL, and give what each answered."""
    pool = request.module.POOL
    with running(pool, tmp_path_factory.mktemp(pool)) as rig:
        found = rig.run(selected(request.session.items, request.module.__name__))
        assert not rig.held(), "slots are held after all cases have ended"
        yield found
