"""A noted choice can be derived again from the view that it was made from; a scheduler notes few,
and none twice.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.devices import kind_of
from parsync_redis.model.explanation import MOST_LOST_TO, Choice, Ranked, Step
from parsync_redis.model.ids import MAX_ID
from parsync_redis.model.limits import MAX_WORDS
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.preferences import MAX_PREFERENCES, preferences_text
from parsync_redis.model.replies import Snapshot
from parsync_redis.placement.preferences import rules_of
from parsync_redis.placement.rules import PLACEMENT_RULES
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.placement_log import CHOICES_PER_GAP
from parsync_redis.scheduler.core.plan import Plan
from parsync_redis.store.scripts.lengths import limit_of
from tests.kit.core_rig import Queue, judge, judge_each, make, node, see, tasks_of, waiting
from tests.store.model.test_fits import NEEDS, OFFERS


def at_gap(core: Core) -> Plan:
    """Return the plan after a tick of the scheduler's own turn: that is when choices
    are written.
    """
    core.on_tick(1)
    return core.plan(confirm=False)


NODES = st.lists(
    st.tuples(
        OFFERS, st.sampled_from(["up", "up", "up", "suspect"]), st.sampled_from([1.0, 2.0, 9.5])
    )
)


@given(NODES, NEEDS)
def test_a_choice_can_be_derived_again_from_the_view(
    some: list[tuple[Resources, str, float]], needs: Resources
) -> None:
    core = make()
    nodes = list[Node]()
    bits = list[bool]()
    first = 0
    for at, (offer, state, score) in enumerate(some):
        # name, state, incarnation, drain, first bit, slots, score, offer
        nodes.append(Node(f"n{at}", state, 1, False, first, offer.slots, score, offer))
        bits += [state == "up"] * offer.slots
        first += offer.slots
    core.on_nodes(0, nodes, 1)
    left = {one.name: one.offer.asked for one in nodes}
    core.on_snapshot(
        Snapshot(0, 1, 1, np.packbits(np.array(bits, dtype=bool)).tobytes(), left), 5.0
    )
    plan = waiting(core, 1, needs.text).turn()
    if not plan.commit:
        return
    judge(core, plan, ClaimOutcome.HELD)
    (choice,) = at_gap(core).choices.values()
    able = nodes
    expected = [Step("nodes", len(able)), Step("name", len(able)), Step("near", len(able))]
    for rule in PLACEMENT_RULES:
        able = [one for one in able if rule.admits(one.offer, needs)]
        expected.append(Step(rule.name, len(able)))
    able = [one for one in able if one.state == "up"]
    expected += [Step("state", len(able)), Step("free", len(able))]
    (claim,) = plan.commit[0]
    mine = next(one for one in able if one.name == claim.node)
    others = kept_back(nodes, needs)
    assert choice.steps == tuple(expected)
    is_kept_back = mine.name in others
    assert not is_kept_back or all(one.name in others for one in able)
    able = [one for one in able if (one.name in others) == is_kept_back]
    bucket = int(is_kept_back)
    sentence = ("not kept back", "kept back for tasks that ask for what it has")[bucket]
    assert choice.ranked == (Ranked("not kept back", bucket, bucket, len(able), sentence),)
    assert (choice.node, choice.score) == (mine.name, mine.score)
    assert choice.best == max(one.score for one in able)
    assert choice.rank == 1 + sum(one.score > mine.score for one in able)
    assert Choice.of(choice.text) == choice


def kept_back(nodes: list[Node], needs: Resources) -> set[str]:
    """Return the nodes with a resource that fewer than half of the nodes have, and that is not
    asked for.
    """
    kinds = {
        one.name: {kind_of(name) for name, amount in one.offer.amounts if amount} for one in nodes
    }
    having = Counter(kind for some in kinds.values() for kind in some)
    scarce = {kind for kind, count in having.items() if 2 * count < len(nodes)}
    asked = {kind_of(name) for name, _ in needs.amounts}
    return {name for name, some in kinds.items() if some & (scarce - asked)}


def test_a_choice_says_that_nodes_with_scarce_resources_are_kept_back() -> None:
    core = make()
    gpu = Node("gpu", "up", 1, False, 2, 1, 9.0, Resources.of(1, {"gpu": 1}))
    core.on_nodes(0, [node("a", 1), replace(node("b", 1), first=1), gpu], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bytes([0b11100000]), {"gpu": gpu.offer.asked}), 0.0)
    judge(core, waiting(core, 1).turn(), ClaimOutcome.HELD)
    (choice,) = at_gap(core).choices.values()
    assert choice.node != "gpu"
    assert choice.steps[-1] == Step("free", 3)
    assert choice.ranked == (Ranked("not kept back", 0, 0, 2, "not kept back"),)
    assert (choice.best, choice.rank) == (1.0, 1)


def test_a_lost_claim_is_in_the_choice_that_wins_with_the_task_that_had_the_slot() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    plan = waiting(core, 1).turn()
    judge_each(core, plan, [Verdict(ClaimOutcome.CONFLICT, "other")])
    judge(core, core.plan(confirm=False), ClaimOutcome.HELD)
    choices = at_gap(core).choices
    assert (choices["t1"].lost, choices["t1"].lost_to) == (1, ("other",))
    assert at_gap(core).choices == {}, "each is written once"


def test_the_lost_claims_before_a_choice_are_counted_although_they_were_not_noted() -> None:
    core = make()
    see(core, 0, [node("n", 2 * CHOICES_PER_GAP)], 2 * CHOICES_PER_GAP)
    plan = waiting(core, CHOICES_PER_GAP + 1).turn()
    last = tasks_of(plan)[-1]
    free = Verdict(ClaimOutcome.HELD, "1000")
    judge_each(core, plan, [free] * CHOICES_PER_GAP + [Verdict(ClaimOutcome.CONFLICT, "another")])
    judge(core, at_gap(core), ClaimOutcome.HELD)
    assert at_gap(core).choices[last].lost_to == ("another",)


def test_a_choice_has_the_last_losers_only_and_the_number_of_all_lost_claims() -> None:
    core = make()
    see(core, 0, [node("n", 10)], 10)
    plan = waiting(core, 1).turn()
    for i in range(MOST_LOST_TO + 2):
        judge_each(core, plan, [Verdict(ClaimOutcome.CONFLICT, f"w{i}")])
        plan = core.plan(confirm=False)
    at_gap(core)
    judge_each(core, plan, [Verdict(ClaimOutcome.CONFLICT, "last")])
    judge(core, core.plan(confirm=False), ClaimOutcome.HELD)
    choice = at_gap(core).choices["t1"]
    assert choice.lost == MOST_LOST_TO + 3
    assert choice.lost_to == ("w3", "w4", "w5", "w6", "last")


def test_the_note_of_the_longest_choice_is_not_refused_by_the_script() -> None:
    values = [f"{'v' * 60}{i}" for i in range(MAX_WORDS // MAX_PREFERENCES)]
    prefer = preferences_text([{f"label{i}": values} for i in range(MAX_PREFERENCES)])
    name = "n" * 63
    choice = Choice(
        name,
        name,
        "latency",
        0.123456,
        tuple(Step(rule.name, 99_999) for rule in (*PLACEMENT_RULES, *PLACEMENT_RULES)),
        1.5,
        1.5,
        99_999,
        ("%C3%A4" * MAX_ID,) * MOST_LOST_TO,
        tuple(
            Ranked(rule.name, 63, 63, 99_999, rule.sentence(1))
            for rule in rules_of(prefer, latency=True, last=name)
        ),
        99_999,
    )
    assert len(choice.ranked) == MAX_PREFERENCES + 3
    assert len(choice.text.encode()) <= limit_of("note_choices", "text")
    stored = Choice.of(choice.text)
    assert stored is not None
    assert stored.ranked[1] == choice.ranked[1]
    assert stored.ranked[-1].sentence.startswith("not label5 in ")


def test_only_some_choices_of_a_gap_are_noted_and_they_wait_for_the_gap() -> None:
    core = make()
    see(core, 0, [node("n", 2 * CHOICES_PER_GAP)], 2 * CHOICES_PER_GAP)
    queue = Queue(core).add("work slots=1", 2 * CHOICES_PER_GAP)
    queue.tell()
    judge(core, queue.turn(), ClaimOutcome.HELD)
    assert not core.plan(confirm=False).choices
    assert len(at_gap(core).choices) == CHOICES_PER_GAP


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"steps":[["a"]],"lost_to":[]}', '{"steps":5}', "null"]
)
def test_a_text_that_is_no_choice_is_none(text: str) -> None:
    assert Choice.of(text) is None
