"""A remedy is enough by itself: whoever does what it says, and nothing else, has room
for the task.
"""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.amount import parse_amount
from parsync_redis.model.apart import undeclared
from parsync_redis.model.devices import attributes_of, indexes_of, share_of
from parsync_redis.model.human import needs_shown
from parsync_redis.model.near import near_label
from parsync_redis.model.needs import TAINT_LABEL, Resources, parse_resources, without
from parsync_redis.model.node import trial_note
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.now import classify, obstacles
from parsync_redis.placement.remedies import START_WORKER, can_hold, find_remedies
from tests.store.model.test_fits import NEEDS
from tests.unit.test_explanations import clusters

NOTES = {
    "suspect": [
        "alive, but 3 tasks did not start",
        "its worker stands still",
        trial_note("tasks fail there", 30),
    ]
}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Resources, list[NodeFacts], dict[str, int]]:
    """Draw needs, nodes that are closed or lack several things at once, and the number of held slots of each node."""
    _, facts = draw(clusters())
    needs = draw(NEEDS)
    nodes: list[NodeFacts] = []
    held: dict[str, int] = {}
    words = [name for name, _ in needs.amounts if name.startswith("apart_")]
    for node in facts:
        state = draw(st.sampled_from([node.state, "leaving"]))
        left = {**node.amounts_left, **{word: 0 for word in words if draw(st.booleans())}}
        booked = draw(st.sampled_from(["", "", "task x (big slots=4)"]))
        is_held = draw(st.booleans())
        note = draw(st.sampled_from(NOTES.get(state, [""])))
        node = replace(
            node, state=state, amounts_left=left, booked=booked, held_back=is_held, note=note
        )
        held[node.name] = (
            node.offer.slots - node.free if node.open else draw(st.integers(0, node.offer.slots))
        )
        nodes.append(node if node.open else replace(node, free=0))
    return needs, nodes, held


@given(situations())
def test_a_node_has_room_when_all_is_done_that_a_remedy_says(
    situation: tuple[Resources, list[NodeFacts], dict[str, int]],
) -> None:
    needs, nodes, held = situation
    classes = classify(needs, nodes)
    by_name = {node.name: node for node in nodes}
    remedies = find_remedies("work", needs, classes, by_name, held)
    if not classes[0].obstacles:
        assert remedies == ()
    elif can_hold(classes[0]):
        assert len(remedies) == sum(map(can_hold, classes))
        for remedy, node_class in zip(remedies, classes, strict=False):
            node = by_name[node_class.nodes[0]]
            for act in remedy.split(" and "):
                node = done(act, node, needs, held)
            assert not obstacles(needs, node), f"{remedy}: {obstacles(needs, node)}"
    else:
        # no worker is given `apart`
        amounts = [amount for amount in needs.amounts if not undeclared(amount[0])]
        bare = Resources.made(needs.slots, amounts, without(needs, TAINT_LABEL).labels)
        assert remedies[0] == f"start a worker that has {needs_shown(bare.text)}"


def done(act: str, node: NodeFacts, needs: Resources, held: dict[str, int]) -> NodeFacts:
    """Return a node after an act."""
    slots = node.offer.slots
    full = dict(node.offer.amounts)
    if re.match(r"(re)?start the worker of node ", act):
        held[node.name] = 0
        return replace(node, state="up", free=slots, amounts_left=full, held_back=False)
    if re.search(r"parsync nodes undrain \S+$", act):
        state = "up" if node.state == "suspect" else node.state
        return replace(node, state=state, draining=False, free=slots - held[node.name])
    if "is not reserved for" in act:
        return replace(node, booked="")
    if act.startswith("mend why such tasks fail"):
        return replace(node, held_back=False)
    if found := re.match(r"(\d+) more free slots? on ", act):
        return replace(node, free=node.free + int(found[1]))
    if found := re.match(r"the end of the task with apart=(\S+) on ", act):
        return replace(node, amounts_left={**node.amounts_left, f"apart_{found[1]}": 1000})
    if found := re.match(r"(\d+) more (\S+) with enough left on ", act):
        return replace(
            node,
            amounts_left={**node.amounts_left, **emptied(node, needs, found[2], int(found[1]))},
        )
    found = re.match(r"(\S+) more of (\S+) free on ", act)
    assert found, act
    return replace(
        node,
        amounts_left={
            **node.amounts_left,
            found[2]: node.amounts_left.get(found[2], 0) + parse_amount(found[2], found[1]),
        },
    )


def emptied(node: NodeFacts, needs: Resources, kind: str, count: int) -> dict[str, int]:
    """Return what is left of a node's devices when so many more of them have enough."""
    share, _ = share_of(kind, needs.amounts) or (0, 0)
    wanted = [(kind, share), *attributes_of(kind, needs.amounts)]
    offered = dict(node.offer.amounts)

    def enough(amounts: dict[str, int], index: int) -> bool:
        return all(amounts.get(f"{name}@{index}", 0) >= amount for name, amount in wanted)

    left = dict(node.amounts_left)
    some = [i for i in indexes_of(offered)[kind] if enough(offered, i) and not enough(left, i)][
        :count
    ]
    return {
        f"{name}@{index}": offered.get(f"{name}@{index}", 0) for index in some for name, _ in wanted
    }


def facts(
    name: str = "n1", offer: str = "slots=2 zone:a", free: int = 2, **more: object
) -> NodeFacts:
    resources = parse_resources(offer)
    state = more.pop("state", "up")
    draining = more.pop("draining", False)
    left = more.pop("left", dict(resources.amounts))
    return NodeFacts(name, state, draining, resources, free, left, **more)  # type: ignore[arg-type]


APART = Resources.made(1, [("apart_web", 1000)], [])
ZONE = Resources.needed(1, {}, {"zone": "z"})


@pytest.mark.parametrize(
    ("needs", "nodes", "held", "remedies"),
    [
        (Resources.needed(1), [], {}, (START_WORKER,)),
        (Resources.needed(1), [facts()], {}, ()),
        (
            APART,
            [facts(free=0, left={"apart_web": 0})],
            {"n1": 2},
            ("1 more free slot on n1 and the end of the task with apart=web on n1",),
        ),
        (
            Resources.needed(2),
            [facts(free=0, draining=True)],
            {"n1": 1},
            ("parsync nodes undrain n1 and 1 more free slot on n1",),
        ),
        (
            Resources.needed(1),
            [facts(free=0, state="down", draining=True)],
            {"n1": 2},
            ("start the worker of node n1 again and parsync nodes undrain n1",),
        ),
        (
            Resources.needed(1),
            [facts(free=0, state="suspect", note=trial_note("tasks fail there at once", 30))],
            {},
            (
                "mend why tasks fail on n1 (parsync events --event failed --node n1), then "
                "parsync nodes undrain n1",
            ),
        ),
        (
            ZONE,
            [facts(free=0, state="down")],
            {},
            (
                "start a worker that has slots=1 zone:z",
                "other needs: n1 lacks zone:z; and start the worker of node n1 again",
            ),
        ),
        (
            ZONE,
            [facts(knows=False)],
            {},
            ("start a worker that has slots=1 zone:z and knows work",),
        ),
        (
            Resources.needed(1, {}, {"zone": "z"}, [near_label("n1")]),
            [facts()],
            {},
            (
                "start the worker of node n1 again so that it has slots=1 zone:z",
                "other needs: n1 lacks zone:z",
            ),
        ),
    ],
)
def test_the_remedies_name_changes_that_let_the_task_run(
    needs: Resources, nodes: list[NodeFacts], held: dict[str, int], remedies: tuple[str, ...]
) -> None:
    by_name = {node.name: node for node in nodes}
    assert find_remedies("work", needs, classify(needs, nodes), by_name, held) == remedies
