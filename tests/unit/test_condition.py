"""Conditions on a label: each form, its text, when it is true, and which forms are refused."""

from typing import Any

import pytest

from parsync_redis.cli.options import parse_requirements
from parsync_redis.errors import InvalidInput
from parsync_redis.model.condition import conditions_of, describe, holds
from parsync_redis.model.needs import Resources, are_needs, is_resources, parse_needs
from parsync_redis.placement.fits import explain_infeasible, fits

FORMS: list[tuple[object, list[str], str]] = [
    ("a", ["a"], "zone:a"),
    (["b", "a", "b"], ["a|b"], "zone in a, b"),
    ({"in": ["a"]}, ["a"], "zone:a"),
    ({"=": "a"}, ["a"], "zone:a"),
    ({"not": "t4"}, ["!t4"], "zone other than t4"),
    ({"not": ["t4", "a10"]}, ["!a10|t4"], "zone not in a10, t4"),
    ({"exists": True}, ["*"], "label zone"),
    ({"exists": False}, ["!*"], "no label zone"),
    ({">=": 24, "<": "80.5"}, ["<80.5", ">=24"], "zone < 80.5"),
    ({"in": ["a", "b"], "not": "b"}, ["!b", "a"], "zone other than b"),
]


@pytest.mark.parametrize(("required", "texts", "words"), FORMS, ids=str)
def test_each_form_has_a_text_that_needs_have_and_offers_do_not(
    required: object, texts: list[str], words: str
) -> None:
    assert conditions_of("zone", required) == texts
    assert describe("zone", texts[0]) == words
    needs = Resources.needed(1, None, {"zone": required})
    assert parse_needs(needs.text) == needs
    assert are_needs(needs.text)
    assert is_resources(needs.text) == (texts == ["a"])


@pytest.mark.parametrize(
    ("condition", "true_of", "false_of"),
    [
        ("a", [["a"], ["b", "a"]], [[], ["b"], ["ab"]]),
        ("a|b", [["b"], ["c", "a"]], [[], ["c"]]),
        ("!a|b", [[], ["c"]], [["a"], ["c", "b"]]),
        ("*", [["a"]], [[]]),
        ("!*", [[]], [["a"]]),
        (
            ">=24",
            [["24"], ["24.0"], ["x", "80"]],
            [[], ["23.9"], ["x"], ["0x40"], ["1e3"], ["24."]],
        ),
        (">24", [["24.1"]], [["24"]]),
        ("<=-1.5", [["-1.5"], ["-2"]], [["0"]]),
        ("<3", [["2"], ["-9"]], [["3"], ["9999999999999999"]]),
    ],
)
def test_a_condition_holds_for_a_value_of_the_label(
    condition: str, true_of: list[list[str]], false_of: list[list[str]]
) -> None:
    assert [holds(condition, values) for values in true_of] == [True] * len(true_of)
    assert [holds(condition, values) for values in false_of] == [False] * len(false_of)


@pytest.mark.parametrize(
    ("required", "why"),
    [
        (
            7,
            "must be a text, a list of texts, or a mapping with the operators = in not exists >= "
            "> <= <",
        ),
        ([], "empty list"),
        ([1], "label value 1 is not valid"),
        ("a b", "label value 'a b' is not valid"),
        ("a|b", "label value 'a|b' is not valid"),
        ({}, "has no operator: known are"),
        ({"==": "a"}, "unknown operator '==': known are = in not exists"),
        ({">=": "much"}, "must be a number of at most 15 characters"),
        ({">=": True}, "must be a number"),
        ({"<": 1e300}, "must be a number"),
        ({"exists": "yes"}, "must be True or False"),
        ({"in": {"a": 1}}, "must be a text or a list of texts"),
        ({"in": ["a"], "not": ["a"]}, "is a contradiction"),
        ({"=": "a", "in": ["b"]}, "is a contradiction"),
        ({"exists": False, ">": 3}, "is a contradiction"),
        ({">": 3, "<": 3}, "is a contradiction"),
        ({">=": 4, "<=": 3}, "is a contradiction"),
    ],
)
def test_a_wrong_requirement_is_refused_with_what_would_be_right(
    required: object, why: str
) -> None:
    with pytest.raises(InvalidInput, match=r"zone|label value") as error:
        Resources.needed(1, None, {"zone": required})
    assert why in str(error.value)


def test_every_value_counts_against_the_limit() -> None:
    with pytest.raises(InvalidInput, match="65 resources and values of labels are too many"):
        Resources.needed(1, None, {"zone": [f"z{n}" for n in range(65)]})


@pytest.mark.parametrize(
    ("words", "required"),
    [
        (["zone=a"], {"zone": "a"}),
        (["zone in a,b"], {"zone": {"in": ["a", "b"]}}),
        (
            ["zone in a, b", "zone!=c", "zone not in d"],
            {"zone": {"in": ["a", "b"], "not": ["c", "d"]}},
        ),
        (["vram_gb>=24", "vram_gb < 80"], {"vram_gb": {">=": "24", "<": "80"}}),
        (["disk exists", "spot not exists"], {"disk": {"exists": True}, "spot": {"exists": False}}),
        (None, {}),
    ],
)
def test_the_flag_takes_each_form(words: list[str] | None, required: dict[str, Any]) -> None:
    assert parse_requirements("--require", words) == required
    assert Resources.needed(1, None, required) == Resources.needed(
        1, None, parse_requirements("--require", words)
    )


@pytest.mark.parametrize(
    "word", ["zone", "zone in", "zone exists a", "=a", "zone=", "zone ~ a", ""]
)
def test_an_unknown_form_of_a_condition_is_refused_with_the_known_forms(word: str) -> None:
    with pytest.raises(InvalidInput, match="must be one of NAME=A, NAME!=A, NAME in A,B"):
        parse_requirements("--require", [word])


def test_a_form_given_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="vram has another such requirement"):
        parse_requirements("--require", ["vram>=1", "vram>=2"])


def test_a_node_with_several_values_of_a_label_has_each() -> None:
    offer = Resources.of(1, None, {"lang": ["fr", "de"], "zone": "a"})
    assert offer.text == "slots=1 lang:de lang:fr zone:a"
    assert fits(offer, Resources.needed(1, None, {"lang": "fr", "zone": {"not": "b"}}))
    assert not fits(offer, Resources.needed(1, None, {"lang": {"not": "fr"}}))


@pytest.mark.parametrize(
    ("required", "why"),
    [
        ({"zone": ["x", "y"]}, "no node has zone in x, y; there are zone: a, b"),
        ({"vram_gb": {">=": 80}}, "no node has vram_gb >= 80; there are vram_gb: 16, 24"),
        ({"zone": {"exists": False}}, "every node has label zone"),
        ({"rack": {">": 3}}, "no node has rack > 3; there are labels vram_gb, zone"),
        (
            {"zone": {"not": "a"}, "vram_gb": {">=": 20}},
            "no node has all of slots=1 vram_gb:>=20 zone:!a at once; n1 comes closest: it lacks "
            "a zone other than a",
        ),
    ],
)
def test_a_condition_that_no_node_meets_is_named(required: dict[str, Any], why: str) -> None:
    offers = {
        "n1": Resources.of(1, None, {"zone": "a", "vram_gb": "24"}),
        "n2": Resources.of(1, None, {"zone": "b", "vram_gb": "16"}),
    }
    assert explain_infeasible(Resources.needed(1, None, required), offers) == why
