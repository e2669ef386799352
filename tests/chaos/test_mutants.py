"""Each planted bug has its place: the words that it changes are in the script or function that it names, once."""

import pytest

from tests.chaos.mutants import MUTANTS, Mutant, planted


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_can_be_planted(mutant: Mutant):
    with planted(mutant) as scripts:
        assert scripts.texts
