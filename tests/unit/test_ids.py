"""Names are checked where they enter, so that no text built from them needs escapes."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import (
    _NAME_RULES,
    MAX_ENCODED_ID,
    check_name,
    decode_id,
    encode_id,
    new_id,
)

KINDS = sorted(_NAME_RULES)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("task name", "proj.tasks.render"),
        ("node name", "celery@host-1.example"),
        ("cluster name", "prod.eu-1"),
        ("resource name", "gpu"),
        ("label name", "gpu_model"),
        ("label value", "a100/40g"),
    ],
)
def test_usual_names_are_valid(kind: str, name: str):
    assert check_name(kind, name) == name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "\n", "a\0", "é", "x" * 300, None, 7, b"a", ["a"]]
)
def test_a_name_that_would_break_a_stored_text_is_refused_with_the_rule(kind: str, name: object):
    with pytest.raises(InvalidInput, match=f"{kind} .* is not valid: it must be"):
        check_name(kind, name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "task name"])
@pytest.mark.parametrize("character", "\"\\{}=,'* \t")
def test_no_name_has_a_character_that_means_something(kind: str, character: str):
    with pytest.raises(InvalidInput):
        check_name(kind, f"a{character}b")


@pytest.mark.parametrize(
    "kind", ["label name", "label value", "resource name", "node name", "cluster name"]
)
def test_a_colon_is_refused_in_names_that_colons_separate(kind: str):
    with pytest.raises(InvalidInput):
        check_name(kind, "a:b")


@given(st.sampled_from(KINDS), st.text(max_size=8))
def test_a_name_that_passes_is_one_word_of_printable_ascii(kind: str, name: str):
    try:
        check_name(kind, name)
    except InvalidInput:
        return
    assert name.isascii()
    assert name.isprintable()
    assert len(name.split()) == 1


@pytest.mark.parametrize("id", ["d9f1-a:b@c+d.e_f", "x" * 255, "7", "2024-01-01T00:00:00+00:00"])
def test_a_usual_id_is_its_own_form(id: str):
    assert encode_id(id) == id


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255))
def test_an_id_reads_back_from_its_encoded_form_without_spaces(id: str):
    encoded = encode_id(id)
    assert re.fullmatch(r"[A-Za-z0-9%][A-Za-z0-9%_.:@+-]*", encoded)
    assert len(encoded) <= MAX_ENCODED_ID
    assert decode_id(encoded) == id


@given(
    st.lists(st.text("aA%2 _.:~é/", min_size=1, max_size=4), min_size=2, max_size=2, unique=True)
)
def test_two_ids_have_two_forms(ids: list[str]):
    assert encode_id(ids[0]) != encode_id(ids[1])


@pytest.mark.parametrize("id", ["", "x" * 256, "\ud800", None, 7, b"a"])
def test_an_invalid_id_is_refused_with_the_rule(id: object):
    with pytest.raises(
        InvalidInput, match=r"task id .* is not valid: it must be a text of 1 to 255 characters"
    ):
        encode_id(id)


def test_a_new_id_is_a_random_uuid_as_celery_makes_them():
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {str(UUID(id, version=4)) for id in made} == made
