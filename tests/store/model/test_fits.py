"""The view and the scripts agree on what fits."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model.amount import amount_text
from parsync_redis.model.apart import held_by
from parsync_redis.model.condition import COMPARISONS
from parsync_redis.model.needs import Resources, parse_needs, parse_resources
from parsync_redis.model.node import Node
from parsync_redis.model.taints import offered_taints, tolerance
from parsync_redis.placement.fits import fits
from parsync_redis.scheduler.core.offers import Offers
from parsync_redis.store import Store
from tests.kit.lua_libraries import library_text

AMOUNTS = st.dictionaries(
    st.sampled_from(["gpu", "mem", "cpu"]),
    st.integers(0, 3)
    | st.integers(0, 2**53 - 1)
    | st.sampled_from(["500m", 0.5, "1.5", "2.999", 0.001]),
)
VALUES = st.sampled_from(
    ["a", "ab", "a.b", "b/c", "3", "-3.5", "03", "16.0", "2.", "1e3", "0x10", "123456789012345"]
)
NAMES = st.sampled_from(["zone", "gpu", "z", "zone.a"])
LABELS = st.dictionaries(NAMES, VALUES | st.lists(VALUES, min_size=1, max_size=3))
NUMBERS = st.sampled_from([3, -3.5, "16", "2.0", 123456789012345])
REQUIRED = (
    VALUES
    | st.lists(VALUES, min_size=1, max_size=3)
    | st.builds(lambda sign, value: {sign: value}, st.sampled_from(["=", "in", "not"]), VALUES)
    | st.builds(lambda sign, number: {sign: number}, st.sampled_from([*COMPARISONS]), NUMBERS)
    | st.builds(lambda exists: {"exists": exists}, st.booleans())
    | st.builds(
        lambda low, values: {">=": low, "not": values},
        NUMBERS,
        st.lists(VALUES, min_size=1, max_size=2),
    )
)
TAINTS = st.lists(st.sampled_from(["spot", "spo", "old.1", "a/b"]), max_size=3)
SHARES = st.sampled_from([0, 1, 2, 3, 0.5, 0.3, "999m", 1.5])
MEMORY = st.integers(0, 3) | st.sampled_from([8, "24GiB", 2.5, "2.499"])


def offer_of(
    plain: Resources, taints: list[str], devices: dict[str, Any], mem: dict[str, Any], shared: bool
) -> Resources:
    """Return an offer that has what it can of these: no resource is an amount and devices."""
    amounts = {name: amount_text(amount) for name, amount in plain.amounts if name not in devices}
    of_devices = {name: amount for name, amount in mem.items() if name.partition(".")[0] in devices}
    of_devices = {
        name: a
        for name, a in of_devices.items()
        if "@" not in name or int(name[-1]) in devices["gpu"]
    }
    labels: dict[str, list[str]] = {}
    for name, value in plain.labels:
        labels.setdefault(name, []).append(value)
    return Resources.of(
        plain.slots, amounts, labels, offered_taints(taints), devices, of_devices, shared
    )


DEVICES = st.dictionaries(
    st.sampled_from(["gpu", "gpu", "nic"]),
    st.lists(st.sampled_from([0, 1, 2, 10]), min_size=1, max_size=4, unique=True),
)
OF_DEVICES = st.dictionaries(
    st.sampled_from(["gpu.mem", "gpu.mem@0", "gpu.mem@2", "nic.rate"]), MEMORY
)
PLAIN = st.builds(Resources.of, st.integers(1, 4), AMOUNTS, LABELS, TAINTS.map(offered_taints))
OFFERS = PLAIN | st.builds(
    offer_of,
    st.builds(Resources.of, st.integers(1, 4), AMOUNTS, LABELS),
    TAINTS,
    DEVICES,
    OF_DEVICES,
    st.booleans(),
)
ASKED = st.dictionaries(st.sampled_from(["gpu", "nic"]), SHARES) | st.dictionaries(
    st.sampled_from(["gpu", "gpu.mem", "nic.rate", "mem"]), MEMORY
)
BOTH = st.builds(lambda one, other: {**one, **other}, ASKED, ASKED)
APART = st.sampled_from(["", "", "web", "gpu"]).map(held_by)
NEEDS = st.builds(
    lambda needs, apart: Resources.made(needs.slots, [*needs.amounts, *apart], needs.labels),
    st.builds(
        Resources.needed,
        st.integers(1, 4),
        AMOUNTS | ASKED | BOTH,
        st.dictionaries(NAMES, REQUIRED, max_size=3),
        TAINTS.map(tolerance),
    ),
    APART,
)
PAIRS = st.tuples(OFFERS, NEEDS) | PLAIN.map(lambda offer: (offer, offer))
SCRIPT = (
    library_text("kind/fits")
    + """
local answers = {}
for i = 1, #ARGV, 2 do answers[#answers + 1] = fits(ARGV[i], ARGV[i + 1]) and 1 or 0 end
return answers
"""
)


@given(st.lists(OFFERS, max_size=6), NEEDS)
def test_many_nodes_checked_at_once_fit_like_each_checked_alone(
    offers: list[Resources], needs: Resources
) -> None:
    nodes = [
        Node(f"n{at}", "up", 1, False, 4 * at, 4, 1.0, offer) for at, offer in enumerate(offers)
    ]
    assert Offers(nodes).fitting(needs, None).tolist() == [fits(offer, needs) for offer in offers]


def test_the_view_and_the_scripts_agree_on_which_nodes_fit(every_store: list[Store]):
    clients: list[Any] = [store.client for store in every_store]

    @settings(max_examples=300)
    @given(st.lists(PAIRS, min_size=1, max_size=50))
    def same(pairs: list[tuple[Resources, Resources]]) -> None:
        expected = [fits(offer, needs) for offer, needs in pairs]
        for client in clients:
            answers = client.eval(
                SCRIPT, 0, *(resources.text for pair in pairs for resources in pair)
            )
            assert [bool(answer) for answer in answers] == expected, client
        assert all(
            parse_resources(offer.text) == offer and parse_needs(needs.text) == needs
            for offer, needs in pairs
        )

    same()
