"""A node that refuses claims by the present state becomes suspect; one that others are faster on
does not.
"""

import pytest

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.needs import parse_resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.scheduler.core.claim_outcomes import REFUSALS_IN_A_ROW, RefusingNode
from tests.kit.core_rig import bitmap, claims_of, make, node, see, takes, waiting


def refuse(core, plan, verdict, moved=0, turns=REFUSALS_IN_A_ROW):
    """Refuse the claim of a plan and of those that follow; moved: changes of others meanwhile."""
    found = []
    version = 1
    for _ in range(turns):
        assert plan.commit, "no claim"
        version += moved
        core.on_judged(Judged(0, version, 1000, plan.commit[0], [verdict]))
        core.on_snapshot(Snapshot(0, version, 1, bitmap(1), {}), 0.0)
        plan = core.plan(confirm=False)
        found += plan.suspect
    return plan, found


def refusing(word, detail, moved=0, turns=REFUSALS_IN_A_ROW):
    core = make()
    see(core, 0, [node("n", 1)], 1)
    return refuse(core, waiting(core, 1).turn(), Verdict(word, detail), moved, turns)[1]


@pytest.mark.parametrize(
    ("word", "detail", "last"),
    [
        (ClaimOutcome.CONFLICT, "a%2Fb", "task a/b has the slot"),
        (ClaimOutcome.CONFLICT, "", "the slot takes no claims"),
        (ClaimOutcome.SHORT, "gpu=0", "it has left gpu=0"),
        (ClaimOutcome.SHORT, "", "it has left nothing"),
    ],
)
def test_refusals_in_a_row_by_the_present_state_make_a_node_suspect_once(word, detail, last):
    why = f"5 claims in a row were refused although it looks free; the last: {last}"
    assert refusing(word, detail) == [RefusingNode(0, "n", 1, why)]
    assert refusing(word, detail, turns=REFUSALS_IN_A_ROW - 1) == []


def test_claims_that_others_were_faster_with_are_no_refusals():
    assert refusing(ClaimOutcome.CONFLICT, "a", moved=1, turns=2 * REFUSALS_IN_A_ROW - 1) == []


def test_a_claim_that_wins_begins_the_row_anew():
    core = make()
    see(core, 0, [node("n", 1)], 1)
    queue = waiting(core, 2)
    refused = Verdict(ClaimOutcome.CONFLICT, "a")
    plan, found = refuse(core, queue.turn(), refused, turns=REFUSALS_IN_A_ROW - 1)
    assert found == []
    core.on_judged(Judged(0, 2, 1000, plan.commit[0], [Verdict(ClaimOutcome.HELD, "1000")]))
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(1), {}), 0.0)
    assert refuse(core, queue.turn(), refused, turns=REFUSALS_IN_A_ROW - 1)[1] == []


def test_a_seat_whose_amounts_other_schedulers_took_is_not_claimed():
    """The commit would refuse it by a state that the copy has, so contention would look like a
    contradiction.
    """
    core = make()
    # name, state, incarnation, drain, first bit, slots, score, offer
    core.on_nodes(0, [Node("n", "up", 1, False, 0, 3, 1.0, parse_resources("slots=3 gpu=2"))], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(3), {"n": "gpu=2"}), 0.0)
    core.plan(place=False, confirm=False)
    queue = waiting(core, 2, "slots=1 gpu=1")
    plan = core.plan(confirm=False)
    assert takes(plan) == [("work slots=1 gpu=1", 2)]
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(3), {"n": "gpu=1"}), 0.0)
    queue.answer(plan)
    assert len(claims_of(core.plan(place=False, confirm=False))) == 1
