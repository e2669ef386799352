"""Every key is spelled once, with one hash tag for what a script touches together."""

import re

import pytest

from parsync_redis.errors import BrokenContract, InvalidInput
from parsync_redis.model.claim import Claim
from parsync_redis.store.scripts.calls import ALL_SCRIPTS, Commands
from parsync_redis.wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS, Keys
from tests.kit.sample import sample_calls

KEYS = Keys("demo")


def test_keys_are_spelled_as_the_documents_say():
    assert KEYS.queue("later") == "parsync:{demo:q0}:later"
    assert KEYS.pending("a slots=1") == "parsync:{demo:q0}:pending:a slots=1"
    assert KEYS.extra("a") == "parsync:{demo:q0}:extra:a"
    assert KEYS.partition(3, "slots") == "parsync:{demo:p3}:slots"
    assert KEYS.inbox(3, "n1") == "parsync:{demo:p3}:inbox:n1"
    assert KEYS.shared("schedulers") == "parsync:{demo}:schedulers"
    assert KEYS.stats("s1") == "parsync:{demo}:stats:s1"
    assert KEYS.tick == "parsync:{demo}:tick@0"
    assert Keys("demo", 3, shards=2).own_channels("s1", 1) == {
        "parsync:{demo:q0}:wake@3:s1": ("wake", 0),
        "parsync:{demo:q1}:wake@3:s1": ("wake", 1),
        "parsync:{demo:p0}:freed@3:s1": ("freed", 0),
    }
    assert KEYS.hearing("wake") == "parsync:{demo:q*}:wake@0:*"
    assert KEYS.hearing("freed") == "parsync:{demo:p*}:freed@0:*"


def test_no_two_keys_are_spelled_alike():
    every = [KEYS.queue(kind) for kind in QUEUE_KINDS] + [
        KEYS.shared(kind) for kind in CLUSTER_KINDS
    ]
    every += [KEYS.partition(p, kind) for p in range(12) for kind in PARTITION_KINDS]
    every += [KEYS.extra("a"), KEYS.pending("a slots=1"), KEYS.inbox(0, "n1"), KEYS.stats("s1")]
    assert len(set(every)) == len(every)


def test_a_kind_that_there_is_not_is_a_bug():
    for spell in (KEYS.queue, KEYS.shared, lambda kind: KEYS.partition(0, kind)):
        with pytest.raises(BrokenContract):
            spell("leases")


@pytest.mark.parametrize("name", ["", "a b", "{x}", "a:b", "x" * 65])
def test_a_cluster_name_that_would_break_the_keys_is_refused(name: str):
    with pytest.raises(InvalidInput, match="cluster name"):
        Keys(name)


def test_the_keys_of_a_call_are_of_one_tag():
    calls = sample_calls(Commands(KEYS)).values()
    assert {call.script.verb for call in calls} == {script.verb for script in ALL_SCRIPTS}
    for call in calls:
        tags = {re.search(r"\{(.*?)\}", key)[1] for key in call.keys}  # type: ignore[index]
        assert len(tags) == 1, call.script.verb
        named = call.script.keys
        assert (
            len(call.keys) >= len(named)
            if named[-1].endswith("*")
            else len(call.keys) == len(named)
        )


def test_a_commit_names_each_inbox_once():
    claims = [Claim("a", "1@1", 3, node, (0,), 1, "", 0, 1) for node in ("n1", "n2", "n1")]
    call = Commands(KEYS).commit(3, claims)
    assert list(call.keys[5:]) == [KEYS.inbox(3, "n1"), KEYS.inbox(3, "n2")]
    assert list(call.args[5::4]) == [1, 2, 1]
