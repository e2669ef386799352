"""Every rule says the same in all its forms: of one node, of many at once, in Lua, and in its
sentences.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model.needs import Resources
from parsync_redis.placement.columns import Columns
from parsync_redis.placement.fits import fits, fitting
from parsync_redis.placement.rules import PLACEMENT_RULES
from parsync_redis.placement.rules.rule import Rule
from parsync_redis.store import Store
from tests.kit.lua_libraries import library_text
from tests.store.model.test_fits import NEEDS, OFFERS

each = pytest.mark.parametrize("rule", PLACEMENT_RULES, ids=lambda rule: rule.name)


@each
@given(offers=st.lists(OFFERS, min_size=1, max_size=6), needs=NEEDS)
def test_many_nodes_are_judged_as_each_is(
    rule: Rule, offers: list[Resources], needs: Resources
) -> None:
    admitted = [rule.admits(offer, needs) for offer in offers]
    assert rule.mask(Columns(offers), needs).tolist() == admitted
    assert rule.concerns(needs) or all(admitted), (
        "a rule that does not concern a task turns no node away"
    )
    assert [not rule.lacking(needs, offer) for offer in offers] == admitted, (
        "a node that fails lacks something"
    )
    nowhere = rule.nowhere(needs, {f"n{at}": offer for at, offer in enumerate(offers)})
    assert not (nowhere and any(admitted)), "what no node meets is said of needs that no node meets"


@given(offers=st.lists(OFFERS, max_size=6), needs=NEEDS)
def test_a_node_fits_if_every_rule_admits_it(offers: list[Resources], needs: Resources) -> None:
    each = [all(rule.admits(offer, needs) for rule in PLACEMENT_RULES) for offer in offers]
    assert [fits(offer, needs) for offer in offers] == each
    assert fitting(Columns(offers), needs).tolist() == each


@pytest.mark.unaudited
@pytest.mark.parametrize("verb", dict.fromkeys(rule.lua for rule in PLACEMENT_RULES))
def test_a_rule_in_lua_says_the_same(any_store: Store, verb: str) -> None:
    client: Any = any_store.client
    rules = [rule for rule in PLACEMENT_RULES if rule.lua == verb]
    script = f"{library_text('kind/fits')} return {verb}(ARGV[1], ARGV[2]) and 1 or 0"

    @settings(max_examples=150)
    @given(OFFERS, NEEDS)
    def same(offer: Resources, needs: Resources) -> None:
        answer = bool(client.eval(script, 0, offer.text, needs.text))
        assert answer == all(rule.admits(offer, needs) for rule in rules)

    same()


def test_rules_have_unique_names_and_declare_the_keys_they_read() -> None:
    assert len({rule.name for rule in PLACEMENT_RULES}) == len(PLACEMENT_RULES)
    assert all(rule.reads for rule in PLACEMENT_RULES)
