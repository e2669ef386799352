"""The offer of a worker as a node, by its flags and its environment; wrong ones are refused."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool

from parsync_redis import InvalidInput
from parsync_redis.settings import node_options
from parsync_redis.worker.celery.port import read_facts
from parsync_redis.worker.node.node import node_spec, pairs


def test_pairs_are_name_and_value_of_which_the_value_may_hold_an_equals_sign() -> None:
    assert pairs("--parsync-label", ("a=1", "b=x=y")) == {"a": ["1"], "b": ["x=y"]}
    assert pairs("--parsync-label", None) == {}


@pytest.mark.parametrize(
    ("words", "why"), [(("a",), "NAME=VALUE"), (("a=1", "a=2"), "a was given before, as '1'")]
)
def test_pairs_that_are_none_or_given_twice_are_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        pairs("--parsync-label", words)


def worker(pool: Any = PreforkPool, **more: Any) -> Any:
    return SimpleNamespace(
        **{"pool_cls": pool, "concurrency": 8, "max_concurrency": None, "hostname": "celery@h"}
        | more
    )


def test_a_node_is_by_default_named_as_its_worker_and_has_a_slot_for_each_process() -> None:
    spec = node_spec(read_facts(worker()), {"parsync": True}, {})
    assert (spec.name, spec.offer.text, spec.score) == ("celery@h", "slots=8", 1.0)
    assert node_spec(read_facts(worker(max_concurrency=9)), {}, {}).offer.slots == 9
    assert node_spec(read_facts(worker(SoloPool)), {}, {}).offer.slots == 1


def test_a_node_offers_what_its_flags_say() -> None:
    flags = {
        "parsync_node": "n1",
        "parsync_slots": 4,
        "parsync_score": -2.5,
        "parsync_label": ("zone=a",),
        "parsync_resource": ("mem=2KiB",),
        "parsync_taint": ("spot", "old", "spot"),
    }
    spec = node_spec(read_facts(worker()), *node_options(flags))
    assert (spec.name, spec.offer.text, spec.score) == (
        "n1",
        "slots=4 mem=2048 parsync.taint:old parsync.taint:spot zone:a",
        -2.5,
    )


@pytest.mark.parametrize(
    "flags",
    [
        {"parsync_node": "a b"},
        {"parsync_node": ""},
        {"parsync_slots": 0},
        {"parsync_slots": 10_001},
        {"parsync_score": float("nan")},
        {"parsync_score": float("inf")},
        {"parsync_label": ("=1",)},
        {"parsync_resource": ("mem=-1",)},
        {"parsync_taint": ("a b",)},
    ],
)
def test_flags_without_sense_are_refused(flags: dict[str, Any]) -> None:
    found, said = node_options(flags)
    assert found, "it is a node, or wants to be"
    with pytest.raises(InvalidInput):
        node_spec(read_facts(worker()), found, said)


@pytest.mark.parametrize(
    ("pool", "slots", "why"),
    [
        (
            PreforkPool,
            8,
            "--parsync-slots 12 is more than the 8 processes of the pool: the node offers 8 slots",
        ),
        (
            ThreadPool,
            8,
            "--parsync-slots 12 is more than the 8 threads of the pool: the node offers 8 slots",
        ),
        (SoloPool, 12, "--parsync-slots 12: the solo pool runs one task at a time"),
    ],
)
def test_more_slots_than_the_pool_runs_tasks_are_warned_of_and_not_offered(
    pool: Any, slots: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (
        node_spec(read_facts(worker(pool)), *node_options({"parsync_slots": 12})).offer.slots
        == slots
    )
    (record,) = caplog.records
    assert (record.levelname, why in record.message) == ("WARNING", True)


def test_the_slots_of_a_node_follow_its_pool_up_to_its_flag() -> None:
    def slots(processes: int, **flags: Any) -> int:
        spec = node_spec(read_facts(worker()), *node_options({"parsync": True} | flags))
        spec.follow(processes, None)
        return spec.offer.slots

    assert [slots(n) for n in (2, 12)] == [2, 12]
    assert slots(0) == 8, "an empty pool makes the node suspect; its offer stays"
    assert [slots(n, parsync_slots=4) for n in (2, 12)] == [2, 4]
    assert [slots(n, parsync_slots=12) for n in (2, 10, 14)] == [2, 10, 12]


def test_a_worker_without_flags_is_no_node() -> None:
    none = {"parsync": None, "parsync_node": None, "parsync_label": (), "parsync_slots": None}
    assert node_options(none) == ({}, {})


def test_a_node_offers_what_its_environment_says_and_flags_go_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "PARSYNC_NODE": "1",
        "PARSYNC_NODE_NAME": "n1",
        "PARSYNC_NODE_SLOTS": "4",
        "PARSYNC_NODE_SCORE": "-2.5",
        "PARSYNC_NODE_LABELS": "zone=a, kind=b",
        "PARSYNC_NODE_RESOURCES": "mem=2KiB",
        "PARSYNC_NODE_TAINTS": "spot",
        "PARSYNC_NODE_ONLY": "yes",
    }.items():
        monkeypatch.setenv(name, value)
    found, said = node_options({})
    spec = node_spec(read_facts(worker()), found, said)
    assert (spec.name, spec.offer.text, spec.score) == (
        "n1",
        "slots=4 mem=2048 kind:b parsync.taint:spot zone:a",
        -2.5,
    )
    assert found["parsync_only"] is True
    assert node_spec(read_facts(worker()), *node_options({"parsync_slots": 7})).offer.slots == 7
    monkeypatch.setenv("PARSYNC_NODE", "0")
    assert node_options({}) == ({}, {}), "said to be none"
    assert node_options({"parsync_slots": 7})[0]["parsync_slots"] == 7


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("PARSYNC_NODE", "maybe", "PARSYNC_NODE='maybe' is not valid: it must be 1 or 0"),
        (
            "PARSYNC_NODE_SLOTS",
            "many",
            "PARSYNC_NODE_SLOTS='many' is not valid: it must be a whole number",
        ),
        ("PARSYNC_NODE_SLOTS", "0", "PARSYNC_NODE_SLOTS: slots=0 is not valid"),
        ("PARSYNC_NODE_SCORE", "inf", "PARSYNC_NODE_SCORE inf is not valid"),
        (
            "PARSYNC_NODE_LABELS",
            "zone",
            "PARSYNC_NODE_LABELS 'zone' is not valid: it must be NAME=VALUE",
        ),
        ("PARSYNC_NODE_RESOURCES", "mem=much", "PARSYNC_NODE_RESOURCES: "),
        ("PARSYNC_NODE_TAINTS", "a=b", "PARSYNC_NODE_TAINTS: taint 'a=b' is not valid: it must be"),
    ],
)
def test_a_wrong_variable_of_a_node_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput) as refused:
        node_spec(read_facts(worker()), *node_options({}))
    assert why in str(refused.value)
