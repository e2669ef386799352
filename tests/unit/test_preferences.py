"""The option `prefer`: its text, and the buckets into which each rule puts nodes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from celery import Celery
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from parsync_redis import Parsync
from parsync_redis.cli import app as cli_app
from parsync_redis.errors import InvalidInput
from parsync_redis.model.kind import Kind
from parsync_redis.model.near import near_label
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.preferences import (
    MAX_RULES_TEXT,
    are_preferences,
    preferences_of,
    preferences_shown,
    preferences_text,
)
from parsync_redis.placement.columns import Columns
from parsync_redis.placement.preferences import rules_of
from parsync_redis.placement.preferences.preference import (
    MAX_BUCKET,
    ClusterNow,
    NodesNow,
    fifths,
)
from parsync_redis.serve.body import make_tasks
from parsync_redis.serve.rate import RateBucket
from parsync_redis.serve.rights import Rights
from parsync_redis.serve.submitters import KnownSubmitter
from parsync_redis.settings import load_rules
from parsync_redis.submission import make_submission

TEXTS: list[tuple[list[Any], str]] = [
    (["pack"], "pack"),
    (["warm:llama:7b/q4@x+y-z_.1", "pack"], "warm=llama:7b/q4@x+y-z_.1,pack"),
    (["pack:gpu", "spread:zone", "spread"], "pack=gpu,spread=zone,spread"),
    (["zone=a", "score", "fresh", "cheap"], "zone:a,score,fresh,cheap"),
    (["zone!=a", "vram_gb>=24"], "zone:!a,vram_gb:>=24"),
    (["zone in b, a", "spot not exists"], "zone:a|b,spot:!*"),
    ([{"zone": ["a", "b"]}], "zone:a|b"),
    ([{"zone": {"b": 2, "a": 0}}], "zone:a=0|b=2"),
    (["zone:b=2,a=0"], "zone:a=0|b=2"),
    ([{"vram_gb": {">=": 8}}], "vram_gb:>=8"),
]


@pytest.mark.parametrize(("preferences", "text"), TEXTS)
def test_preferences_have_a_text_that_a_kind_keeps(preferences: list[Any], text: str) -> None:
    assert preferences_text(preferences) == text
    assert are_preferences(text)
    assert len(preferences_of(text)) == len(text.split(",")), "each rule is read again"
    for strategy in ("", "latency"):
        kind = Kind("work", "slots=1 gpu=1 zone:b", strategy, "acme", "stripe", text)
        assert Kind.of(kind.text) == kind
    assert TaskOptions.of({"prefer": preferences}).prefer == text


LABELS = st.sampled_from(["zone", "vram_gb", "a.b-c"])
VALUES = st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,5}\Z")
LABEL_RULES = st.one_of(
    st.dictionaries(LABELS, st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=1),
    st.dictionaries(
        LABELS,
        st.one_of(
            st.fixed_dictionaries({"not": st.lists(VALUES, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"exists": st.booleans()}),
            st.fixed_dictionaries({">=": st.integers(-99, 99)}),
            st.fixed_dictionaries({"<": st.decimals(0, 99, places=2).map(str)}),
            st.dictionaries(VALUES, st.integers(0, 9), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=1,
    ),
)
RULES = st.one_of(
    LABEL_RULES,
    st.sampled_from(["pack", "pack:gpu", "spread:zone", "warm:llama:7b", "score", "near:a b"]),
)


@given(st.lists(RULES, max_size=4))
def test_preferences_as_people_are_shown_them_can_be_given_back(preferences: list[Any]) -> None:
    try:
        text = preferences_text(preferences)
    except InvalidInput:  # a rule that comes twice
        assume(False)
    shown = preferences_shown(text)
    assert preferences_text(shown.split(", ") if shown else []) == text


def test_the_longest_preferences_that_are_given_are_not_longer_than_a_kind_allows() -> None:
    values = {f"a{index:x<62}": 9 for index in range(10, 74)}
    words = preferences_text([{"z" * 63: values}])
    nodes = [":".join(near_label(f"{index}{'@' * 127}")) for index in range(5)]
    text = ",".join([words, *nodes])
    assert len(text) > MAX_RULES_TEXT * 0.75
    assert are_preferences(text)
    assert not are_preferences("a" * (MAX_RULES_TEXT + 1))


def test_a_rule_that_this_version_does_not_know_is_passed_over() -> None:
    assert [rule.rule for rule in preferences_of("pack,colour,score")] == ["pack", "score"]


@pytest.mark.parametrize(
    ("preferences", "why"),
    [
        (["pak"], "did you mean pack?"),
        (["pack", "pack"], "is given twice"),
        (["a=1", "b=1", "c=1", "d=1", "e=1", "f=1", "g=1"], "a task has 6 at most"),
        (["score:x"], "score has no argument"),
        (
            ["warm:"],
            "key '' is not valid: it must be 1 to 128 letters, digits or _.:@+/-, a letter",
        ),
        (["warm:a b"], "key 'a b' is not valid"),
        (["warm:-a"], "key '-a' is not valid"),
        (["warm:" + "a" * 129], "is not valid: it must be 1 to 128"),
        (["warm:a=b"], "key 'a=b' is not valid"),
        (["warm:a", "warm"], "a task has one preference warm, because it has one key"),
        (["pack:GPU"], "resource name 'GPU' is not valid"),
        ([" "], "it must be a rule"),
        (["zone:a=0,a=1"], "prefer zone: 'a' has two ranks"),
        (["parsync.near=n1"], "label name 'parsync.near' is reserved"),
        (["near"], "task id '' is not valid"),
        ([{"zone": {"a": 10}}], "a whole number from 0, the best, to 9"),
        ([{"zone": {}}], "prefer zone has no operator"),
        (["vram_gb>=x"], "prefer vram_gb: >= 'x' is not valid"),
        ("pack", "a list of rules in order"),
        ([3], "a list of rules in order"),
        ([{}], "preference {} is not valid: it must be a rule"),
        (["zone:a=" + "9" * 5000], "of 'a' is not valid: it must be a whole number from 0"),
        (
            [{"zone": [f"v{i}" for i in range(40)]}, {"rack": {f"r{i}": 1 for i in range(25)}}],
            "65 values of labels in preferences are too many: there may be 64",
        ),
    ],
)
def test_a_preference_that_is_wrong_is_refused_with_what_would_be_right(
    preferences: Any, why: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)):
        TaskOptions.of({"prefer": preferences})


def work() -> None:
    """Do nothing, as a task."""


@pytest.mark.parametrize("rule", ["pak", "parsync.near=n1", "score:x", "zone:a=10"])
def test_a_wrong_preference_is_the_same_sentence_wherever_it_is_given(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARSYNC_URL", "redis://127.0.0.1:1/0")
    with pytest.raises(InvalidInput) as refused:
        TaskOptions.of({"prefer": [rule]})
    sentence = str(refused.value)
    command_line = CliRunner().invoke(cli_app, ["submit", "work", "--prefer", rule])
    assert (command_line.exit_code, command_line.stderr) == (2, f"error: {sentence}\n")
    submitter = KnownSubmitter(
        "shop", Rights(token_sha256=["0" * 64], names=["*"]), RateBucket(1, 1)
    )
    task = {"name": "work", "prefer": [rule]}
    rules = tmp_path / "parsync.toml"
    rules.write_text(f'[place]\n"work" = {{prefer = ["{rule}"]}}\n')
    app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False)
    Parsync(app)
    known = app.task(name="work", shared=False, parsync=True)(work)
    ways: list[Callable[[], object]] = [
        lambda: make_submission(task),
        lambda: make_tasks(submitter, [task], False, lambda: "shop:1"),
        lambda: load_rules(rules),
        lambda: app.task(shared=False, parsync={"prefer": [rule]})(work),
        lambda: known.apply_async(parsync={"prefer": [rule]}),
        lambda: app.send_task("work", parsync={"prefer": [rule]}),
    ]
    for way in ways:
        with pytest.raises(InvalidInput) as refused:
            way()
        assert str(refused.value).endswith(sentence), "nothing was sent: no server is there"


def nodes(*offers: Resources, free: list[int], **more: Any) -> NodesNow:
    """Return what preferences read of nodes with these offers and free slots."""
    columns = Columns(list(offers))
    amounts_left = more.pop("amounts_left", columns.amounts)
    scores = np.array(more.pop("scores", [1.0] * len(offers)))
    cluster = ClusterNow(fifths(scores), more.pop("scarce", frozenset()), lambda _: more["used"])
    names = [f"n{index}" for index in range(len(offers))]
    return NodesNow(
        columns,
        columns,
        lambda name: names.index(name) if name in names else -1,
        np.array(free),
        amounts_left,
        scores,
        cluster,
        more.get("place_in_turn", 0),
    )


def buckets(text: str, now: NodesNow, needs: Resources | None = None) -> list[int]:
    """Return the buckets of the nodes by the single rule of a text."""
    (rule,) = rules_of(text)[1:]
    of_nodes = rule.buckets(now, needs or Resources.needed()).tolist()
    assert all(rule.sentence(bucket) for bucket in of_nodes)
    return of_nodes


def test_pack_prefers_the_node_of_which_least_would_be_left() -> None:
    now = nodes(*[Resources.of(8)] * 4, free=[8, 5, 3, 1])
    assert buckets("pack", now) == [3, 2, 1, 0]
    gpus = Resources.of(8, devices={"gpu": range(4)})
    left = {"gpu@0": np.array([1000, 0]), "gpu@1": np.array([1000, 1000])}
    left |= {"gpu@2": np.array([1000, 0]), "gpu@3": np.array([1000, 0])}
    now = nodes(gpus, gpus, free=[8, 8], amounts_left=left)
    needs = Resources.needed(1, {"gpu": 1})
    assert buckets("pack=gpu", now, needs) == [3, 0]
    assert buckets("pack", now, needs) == [3, 0], "the scarcest amount counts"


def test_pack_leaves_nodes_that_may_be_full_by_now_to_the_scheduler_that_read_them_last() -> None:
    offers = [Resources.of(8)] * 4
    assert buckets("pack", nodes(*offers, free=[8, 5, 3, 1], place_in_turn=2)) == [3, 2, 1, 4]
    needs = Resources.needed(1, {"gpu": 1})
    gpus = [Resources.of(8, {"gpu": 4})] * 2
    left = {"gpu": np.array([1000, 4000])}
    now = nodes(*gpus, free=[8, 8], amounts_left=left, place_in_turn=1)
    assert buckets("pack=gpu", now, needs) == [4, 3]


def test_spread_prefers_the_node_or_the_label_of_which_least_is_in_use() -> None:
    offers = [Resources.of(4, labels={"zone": zone}) for zone in "aab"]
    now = nodes(*offers, Resources.of(4), free=[4, 1, 0, 2], used={"a": 0.4, "b": 1.0, "": 0.5})
    assert buckets("spread", now) == [0, 3, 3, 2]
    assert buckets("spread=zone", now) == [1, 1, 3, 2]


def test_labels_are_preferred_by_a_condition_or_by_rank() -> None:
    offers = [Resources.of(1, labels={"zone": zone}) for zone in "abc"]
    now = nodes(*offers, Resources.of(1), free=[1] * 4)
    assert buckets("zone:a|b", now) == [0, 0, 1, 1]
    assert buckets("zone:!a", now) == [1, 0, 0, 0]
    assert buckets("zone:a=2|b=0", now) == [2, 0, 3, 3]
    assert buckets("rack:a=0", now) == [1] * 4


def test_cheap_prefers_a_low_price_by_octaves() -> None:
    offers = [Resources.of(1, labels={"cost": cost}) for cost in ("0.5", "0.6", "1.2", "4", "x")]
    of_nodes = buckets("cheap", nodes(*offers, Resources.of(1), free=[1] * 6))
    assert of_nodes[0] == of_nodes[1] == of_nodes[2] - 1 == of_nodes[3] - 3
    assert of_nodes[4:] == [MAX_BUCKET, MAX_BUCKET]


def test_score_prefers_the_best_fifth_and_fresh_the_partition_that_was_read_last() -> None:
    now = nodes(*[Resources.of(1)] * 10, free=[1] * 10, scores=[*range(10)], place_in_turn=2)
    assert buckets("score", now) == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert buckets("score", nodes(*[Resources.of(1)] * 3, free=[1] * 3)) == [0, 0, 0]
    assert buckets("fresh", now) == [2] * 10


def test_near_prefers_the_node_of_the_other_task() -> None:
    now = nodes(*[Resources.of(1)] * 3, free=[1] * 3)
    assert buckets("parsync.near:n1", now) == [1, 0, 1]
    assert buckets("parsync.near:gone", now) == [1, 1, 1], "a node that left is no preference"
    assert rules_of("near=a") == rules_of(""), "a task whose node nobody looked up"


def test_latency_puts_fresh_before_the_rules_of_a_task_and_each_rule_comes_once() -> None:
    for text in ("pack,score", "pack,fresh,score"):
        assert [rule.name for rule in rules_of(text, latency=True, last="n1")] == [
            *("not kept back", "elsewhere", "fresh", "pack", "score")
        ]
    assert [rule.name for rule in rules_of("", latency=True)] == ["not kept back"]


def test_scarce_resources_are_kept_back_and_the_last_node_is_avoided() -> None:
    offers = [Resources.of(1), Resources.of(1, {"gpu": 1})]
    now = nodes(*offers, free=[1, 1], scarce=frozenset(["gpu"]))
    kept_back, elsewhere = rules_of("", last="n0")
    plain = Resources.needed()
    assert kept_back.buckets(now, plain).tolist() == [0, 1]
    assert kept_back.buckets(now, Resources.needed(1, {"gpu": 1})).tolist() == [0, 0]
    assert elsewhere.buckets(now, plain).tolist() == [1, 0]
    assert [rule.sentence(1) for rule in (kept_back, elsewhere)] == [
        "kept back for tasks that ask for what it has",
        "it ran there last",
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [("parsync.near:n1", "near:n1"), ("pack=gpu", "pack:gpu"), ("spread=zone", "spread:zone")],
)
def test_a_rule_and_a_label_of_its_word_are_different_rules(text: str, label: str) -> None:
    rule, of_label = (rules_of(each)[-1] for each in (text, label))
    assert type(rule) is not type(of_label)
    assert rule.key != of_label.key
