"""Devices: the view, the definition in Python and the scripts agree which devices a task holds."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model.apart import undeclared
from parsync_redis.model.devices import hold, kind_of
from parsync_redis.model.needs import Resources, amounts_text, parse_resources
from parsync_redis.model.node import Node
from parsync_redis.placement.rules import PLACEMENT_RULES
from parsync_redis.scheduler.core.partition import PartitionCopy
from parsync_redis.store import Store
from tests.kit.lua_libraries import library_text
from tests.store.model.test_fits import NEEDS, OFFERS

LEFT_OF = {1000: [0, 1000, 1000, 700, 500, 300, 1, -500]}
"""By the whole amount of a device (thousandths), the amounts that may be left of it."""


@st.composite
def fragmented(draw: st.DrawFn, offer: Resources) -> dict[str, int]:
    """Draw what a node has left of its offer, when some of each amount is held."""
    return {
        name: draw(st.sampled_from(LEFT_OF.get(amount, [amount])) | st.integers(0, max(0, amount)))
        for name, amount in offer.amounts
    }


NODES = OFFERS.flatmap(lambda offer: st.tuples(st.just(offer), fragmented(offer)))
SCRIPT = (
    library_text("node/ledger")
    + """
local answers = {}
for i = 1, #ARGV, 2 do
  local left, asked = amounts(ARGV[i]), amounts(ARGV[i + 1])
  local held = is_enough(left, asked) and asked or in_full().hold(left, asked)
  answers[#answers + 1] = held and 'yes ' .. ledger_text(held, true) or 'no'
end
return answers
"""
)


def test_the_scripts_hand_out_the_devices_that_the_definition_says(
    every_store: list[Store],
) -> None:
    clients: list[Any] = [store.client for store in every_store]

    @settings(max_examples=200)
    @given(st.lists(st.tuples(NODES, NEEDS), min_size=1, max_size=20))
    def same(pairs: list[tuple[tuple[Resources, dict[str, int]], Resources]]) -> None:
        texts = [(amounts_text(left.items()), needs.asked) for (_, left), needs in pairs]
        expected = []
        for (_, left), needs in pairs:
            taken = hold(left, needs.amounts)
            expected.append("no" if taken is None else f"yes {amounts_text(sorted(taken.items()))}")
        for client in clients:
            answers = client.eval(SCRIPT, 0, *(text for pair in texts for text in pair))
            assert [answer.decode() for answer in answers] == expected, client

    same()


@given(st.lists(NODES, min_size=1, max_size=5), NEEDS)
def test_the_view_has_just_the_seats_that_commit_would_give(
    nodes: list[tuple[Resources, dict[str, int]]], needs: Resources
) -> None:
    """Each seat of the view is one that the definition gives, one after another, and there are no
    more.
    """
    copy = PartitionCopy(0)
    copy.set_nodes(
        [Node(f"n{at}", "up", 1, 0, 4 * at, 4, 1.0, offer) for at, (offer, _) in enumerate(nodes)],
        1,
    )
    left = {f"n{at}": amounts_text(left.items()) for at, (_, left) in enumerate(nodes) if left}
    copy.set_free(b"\xff" * len(nodes), left, 1)
    before = [copy.amounts_left.of_node(at) for at in range(len(nodes))]
    seats = copy.seats(needs)
    expected = []
    for at, (offer, rest) in enumerate(nodes):
        rest = dict(rest)
        free = offer.slots
        while all(rule.admits(offer, needs) for rule in PLACEMENT_RULES) and free >= needs.slots:
            taken = hold(rest, needs.amounts)
            if taken is None:
                break
            for name, amount in taken.items():
                rest[name] = rest.get(name, undeclared(name)) - amount
            free -= needs.slots
            expected.append(at)
    assert sorted(seats.nodes.tolist()) == expected
    if expected:
        reservation = copy.reserve(seats, np.arange(len(expected)), needs)
        for at, amounts in enumerate(before):
            left_now = copy.amounts_left.of_node(at)
            assert all(left_now[name] >= min(0, amount) for name, amount in amounts.items())
        assert len(copy.seats(needs).leads) == 0, "all of them are taken"
        reservation.give_back()
    after = [copy.amounts_left.of_node(at) for at in range(len(nodes))]
    assert after == before, "the amounts taken go back"


@given(NODES, NEEDS)
def test_a_task_holds_whole_devices_or_shares_of_one_device(
    node: tuple[Resources, dict[str, int]], needs: Resources
) -> None:
    _, left = node
    taken = hold(left, needs.amounts)
    if taken is None:
        return
    assert all(left.get(name, undeclared(name)) >= amount for name, amount in taken.items())
    for kind in {kind_of(name) for name in taken if "@" in name}:
        shares = [amount for name, amount in taken.items() if name.startswith(f"{kind}@")]
        assert shares == [1000] * len(shares) or (len(shares) == 1 and 0 < shares[0] < 1000)


def test_memory_of_two_devices_does_not_add_up() -> None:
    left = dict(parse_resources("slots=4 gpu.mem@0=8 gpu.mem@1=8 gpu@0=0.5 gpu@1=0.5").amounts)
    assert hold(left, [("gpu.mem", 16_000)]) is None
    assert hold(left, [("gpu.mem", 8_000)]) == {"gpu.mem@0": 8_000, "gpu@0": 1}


def test_several_whole_devices_have_the_memory_each() -> None:
    offer = Resources.of(1, devices={"gpu": [0, 1, 2]}, of_devices={"gpu.mem": 24, "gpu.mem@1": 8})
    needs = Resources.needed(1, {"gpu": 2, "gpu.mem": 16})
    assert hold(dict(offer.amounts), needs.amounts) == {
        "gpu@0": 1000,
        "gpu.mem@0": 16_000,
        "gpu@2": 1000,
        "gpu.mem@2": 16_000,
    }


def test_the_fullest_device_is_chosen_and_a_whole_one_is_kept() -> None:
    left = dict(parse_resources("slots=4 gpu@0=1 gpu@1=0.7 gpu@2=0.5").amounts)
    assert hold(left, [("gpu", 400)]) == {"gpu@2": 400}
    assert hold(left, [("gpu", 600)]) == {"gpu@1": 600}
    assert hold(left, [("gpu", 800)]) == {"gpu@0": 800}
    assert hold(left, [("gpu", 1500)]) is None
    assert hold(left, [("gpu", 2000)]) is None
