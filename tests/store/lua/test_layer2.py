"""Every script, with every argument made wrong and every key of another type: all or nothing.

Promise 9 of docs/invariants.md.

A call that is answered by an error or a refusal leaves the dump of every key as it was; the same
call again, well formed, leaves the state as after its first time.
"""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from parsync_redis.store import Call, Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.wire.keys import TYPES
from tests.kit.driver import Driver, dump
from tests.kit.sample import rare_calls, sample_calls
from tests.store.lua.test_refusals import busy_cluster

pytestmark = pytest.mark.unaudited

MALFORMED: list[bytes | str] = [
    "",
    "0",
    "-1",
    "1",
    "2",
    "1.5",
    "99",
    str(2**53),
    str(2**53 + 1),
    "1e14",
    "1e308",
    "1e999",
    "-1e14",
    "nan",
    "inf",
    "0x10",
    "x" * 65_536,
    "a\0b",
    b"\xff\xfe",
    "a b",
    "{x}",
    "n1/0",
    "1,2",
    ",",
    "slots=1",
    "slots=99999999999",
    "gpu=1",
    "yes",
]
SOME = 8 if settings().max_examples < 100 else 1
"""In the quick run a script meets each eighth field only; the next script meets other fields."""

REFUSALS = {
    "none",
    "stale",
    "gone",
    "conflict",
    "short",
    "changed",
    "infeasible",
    "unknown",
    "refused",
    "superseded",
    "lapsed",
    "waiting",
    "held",
    "up",
    "sound",
    "exists",
    "moved",
}
"""Words of a reply that say that nothing was done."""


@pytest.fixture
def fresh(store: Store) -> Callable[[], Driver]:
    """Make the busy cluster anew: once by its scripts, then from a copy of its keys, in one round
    trip.
    """
    kept: list[tuple[bytes, int, bytes]] = []

    def make() -> Driver:
        drive = Driver(store)
        client = cast(Any, store.client)
        if not kept:
            client.flushall()
            busy_cluster(drive)
            keys = sorted(client.scan_iter(count=1000))
            with client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.pttl(key).dump(key)
                facts = pipe.execute()
            ttls = (max(0, ttl_ms) for ttl_ms in facts[::2])
            kept.extend(zip(keys, ttls, facts[1::2], strict=True))
        else:
            with client.pipeline(transaction=False) as pipe:
                pipe.flushall()
                for key, ttl_ms, value in kept:
                    pipe.restore(key, ttl_ms, value)
                pipe.execute()
        return drive

    return make


def test_a_copy_of_the_busy_cluster_is_the_busy_cluster(fresh: Callable[[], Driver]) -> None:
    made = dump(fresh().store)
    copied = dump(fresh().store)
    assert made == copied
    assert len(made) > 10


def send(drive: Driver, call: Call[Any]) -> Any:
    """Return what the server replies to a call, as it is; an error is a value."""
    text = call.script.text
    try:
        return drive.store.client.eval(text, len(call.keys), *call.keys, *call.args)
    except ResponseError as error:
        return error


def refused(reply: Any) -> bool:
    """Return whether nothing may have been written: an error, or one word that says so."""
    if isinstance(reply, Exception):
        return True
    words = reply if isinstance(reply, list) else [reply]
    first = words[0] if words else None
    return (
        len(words) <= 2 and isinstance(first, bytes) and first.decode(errors="replace") in REFUSALS
    )


def check(drive: Driver, call: Call[Any]) -> None:
    before = dump(drive.store)
    reply = send(drive, call)
    assert "BUSY" not in str(reply)
    if refused(reply):
        assert dump(drive.store) == before, (
            f"{call.script.verb} {call.args!r:.300} replied {reply!r:.300}, and changed keys"
        )


@pytest.mark.dealt
@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_a_malformed_argument_changes_all_or_nothing(
    fresh: Callable[[], Driver], verb: str
) -> None:
    count = len(sample_calls(fresh().commands)[verb].args)
    if not count:
        return

    @seed(1)
    @settings(max_examples=max(4 * count, settings().max_examples if SOME == 1 else 0))
    @given(st.integers(0, count - 1), st.sampled_from(MALFORMED))
    def one(at: int, value: bytes | str) -> None:
        drive = fresh()
        call = sample_calls(drive.commands)[verb]
        args = list(call.args)
        args[at] = value
        check(drive, call._replace(args=args))

    one()


ANY_TYPE = ("discard", "repair_partition", "repair_queue", "look_at_nodes")
TYPED = [script.verb for script in ALL_SCRIPTS if script.verb not in ANY_TYPE]
RUNS = {"finish", "requeue"}
NAMED = {("allot", "policy"), ("write_policy", "policy")}
"""Verbs that cannot do without these keys, which others take as they are."""
NOT_NEEDED = {
    "messages": {"take", "read_tasks"},
    "kinds": {"read_tasks", *RUNS},
    "meta": RUNS,
    "changed": RUNS,
    "later": RUNS,
}
"""Keys that scripts name for libraries that read them in other scripts; and the index, on which no
run depends.
"""


@pytest.mark.parametrize("verb", TYPED)
def test_a_key_of_another_type_is_named_before_anything_is_written(
    fresh: Callable[[], Driver], verb: str
) -> None:
    """A script that does not need a key in a call takes it as it is; each key is needed by one of
    the calls.
    """
    commands = fresh().commands
    keys = every_key(sample_calls(commands)[verb])
    count = 1 + len(rare_calls(commands).get(verb, []))
    for at, key in enumerate(keys):
        if key.endswith("}:events"):
            assert all(takes_as_it_is(fresh(), verb, number, key) for number in range(count)), (
                "people read them"
            )
        elif key.endswith(("}:accounts", "}:policy")) and (verb, key[-6:]) not in NAMED:
            assert all(takes_as_it_is(fresh(), verb, number, key) for number in range(count)), (
                "an account in a damaged key is full, and runs go on"
            )
        elif not key.endswith(":"):  # a prefix of keys is no key
            found = [refused_type(fresh(), verb, number, at) for number in range(count)]
            name = key.rpartition(":")[2]
            assert any(found) or verb in NOT_NEEDED.get(name, ()), f"{verb} never looks at {key}"


def every_key(call: Call[Any]) -> list[str]:
    """Return the keys of a call, and those that its script spells itself."""
    return [*call.keys, *call.unsent]


def takes_as_it_is(drive: Driver, verb: str, number: int, key: str) -> bool:
    """Return whether a call is carried out although one of its keys has another type."""
    call = [sample_calls(drive.commands)[verb], *rare_calls(drive.commands).get(verb, [])][number]
    drive.store.client.set(key, "x")
    return not isinstance(send(drive, call), ResponseError)


def refused_type(drive: Driver, verb: str, number: int, at: int) -> bool:
    """Return whether a call refuses a key of another type; if so, nothing is written."""
    call = [sample_calls(drive.commands)[verb], *rare_calls(drive.commands).get(verb, [])][number]
    key = every_key(call)[at]
    names = [*call.script.keys, *call.script.also]
    name = names[min(at, len(names) - 1)].rstrip("*")
    client: Any = drive.store.client
    client.delete(key)
    client.lpush(key, "x") if TYPES[name] != "list" else client.set(key, "x")
    before = dump(drive.store)
    reply = send(drive, call)
    if not isinstance(reply, ResponseError):
        assert name in call.script.header.reads, f"{verb} took {key} as it was: {reply!r}"
        assert dump(drive.store)[key.encode()] == before[key.encode()]
        return False
    assert f"PSRECORD {key} is a" in str(reply) or "WRONGTYPE" in str(reply)
    after = dump(drive.store)
    cache = drive.keys.queue("feasible").encode()
    if key.encode() != cache:  # the cache may have a new answer, which is true all the same
        after, before = ({k: v for k, v in keys.items() if k != cache} for keys in (after, before))
    assert after == before, f"{verb} replied {reply!r} for {key} in call {number}, and changed keys"
    return True


@pytest.mark.dealt
@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_garbled_records_are_no_error_half_way(fresh: Callable[[], Driver], verb: str) -> None:
    """Each field of each hash in turn is garbage: the script refuses without a trace, or does
    something whole.
    """
    client: Any = fresh().store.client
    fields = sorted(
        (key, field) for key in client.scan_iter(_type="HASH") for field in client.hkeys(key)
    )
    first = [script.verb for script in ALL_SCRIPTS].index(verb)
    for at, (key, field) in list(enumerate(fields))[first % SOME :: SOME]:
        drive = fresh()
        drive.store.client.hset(key, field, MALFORMED[at * 7 % len(MALFORMED)])
        check(drive, sample_calls(drive.commands)[verb])


TWICE_THE_SAME = {
    "submit",
    "give_back",
    "confirm",
    "start",
    "finish",
    "requeue",
    "cancel",
    "set_reason",
    "note_choices",
    "offer",
    "commit",
    "release",
    "reclaim",
    "forget_node",
    "configure",
    "deal_node",
    "discard",
    "repair_partition",
    "repair_queue",
    "repair_task",
    "restore",
    "ring",
}
"""Verbs whose repeat changes nothing; the others count (renew, take) or are new each time
(register_node).
"""


@pytest.mark.dealt
@pytest.mark.parametrize("verb", sorted(TWICE_THE_SAME))
def test_a_repeat_leaves_the_state_as_it_was_after_the_first(
    fresh: Callable[[], Driver], verb: str
) -> None:
    drive = fresh()
    call = sample_calls(drive.commands)[verb]
    assert not isinstance(send(drive, call), Exception)
    after = dump(drive.store)
    assert not isinstance(send(drive, call), Exception)
    assert dump(drive.store) == after
