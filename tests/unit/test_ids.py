"""Names are checked where they enter, so that no text built from them needs escapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import _RULES, check_name

KINDS = sorted(_RULES)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("task id", "d9f1-a:b@c+d.e_f"), ("task id", "x" * 128), ("task name", "proj.tasks.render"),
        ("node name", "celery@host-1.example"), ("cluster name", "prod.eu-1"), ("resource name", "gpu"),
        ("label name", "gpu_model"), ("label value", "a100/40g"),
    ],
)  # fmt: skip
def test_what_people_use_is_valid(kind: str, name: str):
    assert check_name(kind, name) == name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "\n", "a\0", "é", "x" * 300, None, 7, b"a", ["a"]])
def test_what_would_break_a_text_is_refused_with_the_rule(kind: str, name: object):
    with pytest.raises(InvalidInput, match=f"{kind} .* is not valid: it must be"):
        check_name(kind, name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "task name"])
@pytest.mark.parametrize("character", "\"\\{}=,'* \t")
def test_no_name_has_a_character_that_means_something(kind: str, character: str):
    with pytest.raises(InvalidInput):
        check_name(kind, f"a{character}b")


@pytest.mark.parametrize("kind", ["label name", "label value", "resource name", "node name", "cluster name"])
def test_what_is_written_with_a_colon_has_none(kind: str):
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
