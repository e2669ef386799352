"""`parsync dev --node`: numbers are amounts, words are labels, and each mistake is named."""

import pytest

from parsync_redis.cli.dev import _nodes
from parsync_redis.cli.node_words import NodeWords, read_node_words
from parsync_redis.errors import InvalidInput


def test_a_node_says_slots_score_amounts_labels_and_taints():
    found = read_node_words(
        "gpu:slots=2,score=9.5,gpu=1,mem=16GiB,gpu_model=a100,year:2024,taint=spot"
    )
    assert found == NodeWords(
        "gpu",
        2,
        9.5,
        {"gpu_model": "a100", "year": "2024"},
        {"gpu": "1", "mem": "16GiB"},
        ("spot",),
    )
    assert found.flags == ["--parsync-taint", "spot"]
    assert read_node_words("n1") == NodeWords("n1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "node name '' is not valid"),
        ("n 1:slots=2", "node name 'n 1' is not valid"),
        ("n1:slots", "is not valid at 'slots': it must be NAME, or NAME:WORD,WORD"),
        ("n1:slots=0", "slots=0 must be a whole number from 1 to 1000"),
        ("n1:score=high", "score=high must be a number"),
        ("n1:Gpu=1", "resource name 'Gpu' is not valid"),
        ("n1:zone=a b", "label value 'a b' is not valid"),
    ],
)
def test_a_mistake_is_named(text, says):
    with pytest.raises(InvalidInput) as raised:
        read_node_words(text)
    assert says in str(raised.value)


def test_equal_workers_and_unlike_ones():
    assert [one.name for one in _nodes(None, (), {}, {}, ())] == ["n1", "n2"]
    assert [one.name for one in _nodes(None, (), {}, {}, ["gpu"])] == ["gpu"]
    both = _nodes(2, (1.0, 2.0), {"zone": "a"}, {"mem": "1GiB"}, ["big:mem=4GiB,zone=b"])
    assert [(one.name, one.score, one.labels, one.resources) for one in both] == [
        ("n1", 1.0, {"zone": "a"}, {"mem": "1GiB"}),
        ("n2", 2.0, {"zone": "a"}, {"mem": "1GiB"}),
        ("big", None, {"zone": "b"}, {"mem": "4GiB"}),
    ]
    with pytest.raises(InvalidInput, match="two nodes have that name"):
        _nodes(1, (), {}, {}, ["n1"])
