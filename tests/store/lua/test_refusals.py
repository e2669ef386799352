"""A call that breaks a script's contract is refused with a code, and changes no key."""

import sys
from typing import Any

import pytest

from parsync_redis.errors import BrokenContract, ServerUnreachable
from parsync_redis.model.task import StoredState, Submission
from parsync_redis.store import Call, Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from tests.kit.driver import Driver, dump
from tests.kit.sample import EPOCH, HELD, UNDER, sample_calls
from tests.kit.waiting import run


@pytest.fixture
def busy(drive: Driver) -> Driver:
    """Return a cluster in which each of `sample_calls` would change something."""
    return busy_cluster(drive)


def busy_cluster(drive: Driver) -> Driver:
    """Make that cluster."""
    drive.node("n1", 2, {"gpu": 2})
    drive.taken("a")
    assert drive.start(HELD) == "ok"
    drive.held("a", HELD.attempt, needs="slots=1 gpu=1")
    drive.store.client.hset(drive.keys.partition(0, "slots"), HELD.seat, HELD.text)
    drive.store.client.hset(drive.keys.partition(0, "meta"), "epoch", EPOCH)
    drive.submit("taken")
    drive.take()
    drive.bring(StoredState.DEAD, "dead")
    drive.submit("waits")
    drive.submit("late", expiry_ms=0)
    drive.submit("due", delay_ms=0)
    drive.offer("n0", "slots=4", "work", "new")
    drive.store.run(drive.commands.set_policy([("stripe", "units=1")]))
    drive.store.run(drive.commands.submit([Submission("counts", "work", b"", UNDER)]))
    return drive


WELL_FORMED = {
    ("offer", "one more argument"),
    ("configure", "no arguments"),
    ("commit", "one more key"),
    ("discard", "one more argument"),
    ("repair_partition", "one less argument"),
    ("repair_partition", "no arguments"),
}


@pytest.mark.dealt
@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_a_wrong_number_of_keys_or_arguments_changes_nothing(busy: Driver, verb: str):
    call = sample_calls(busy.commands)[verb]
    for wrong, keys, args in (
        ("one less argument", call.keys, call.args[:-1]),
        ("one more argument", call.keys, [*call.args, "1"]),
        ("no arguments", call.keys, []),
        ("one less key", call.keys[:-1], call.args),
        ("one more key", [*call.keys, busy.keys.extra("b")], call.args),
    ):
        if (verb, wrong) not in WELL_FORMED:
            refused_without_trace(busy, call._replace(keys=keys, args=args), f"PSARGS {verb}")


def test_every_script_has_a_call_here(drive: Driver):
    assert set(sample_calls(drive.commands)) == {script.verb for script in ALL_SCRIPTS}


def refused_without_trace(drive: Driver, call: Call[Any], code: str) -> None:
    before = dump(drive.store)
    with pytest.raises(BrokenContract, match=code):
        drive.run(call)
    assert dump(drive.store) == before


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (4, 2, "PSARGS commit"),
        (2, "n1/1 n1/2", "PSARGS commit"),
        (3, "1 2", "commit: "),
        (3, "", "commit: "),
    ],
    ids=["no inbox", "no bit", "more bits", "an empty bit"],
)
def test_a_claim_that_is_not_well_formed_spoils_the_whole_call_before_anything_is_written(
    drive: Driver, at: int, value: str | int, code: str
):
    drive.node("n1", 3)
    call = drive.commands.commit(0, [drive.claim("a"), drive.claim("b", "1@2", slots=(1,))])
    args = list(call.args)
    args[1 + 4 + at] = value
    refused_without_trace(drive, call._replace(args=args), code)


def test_an_unknown_outcome_spoils_the_whole_call_before_anything_is_written(busy: Driver):
    place = busy.place("a", "1@1")
    refused_without_trace(
        busy, busy.commands.finish([(place, "succeeded", ""), (place, "great", "")]), "PSOUTCOME"
    )


@pytest.mark.parametrize("word", ["", "rest", "drain over"])
def test_an_unknown_word_for_a_node_changes_nothing(busy: Driver, word: str):
    refused_without_trace(busy, busy.commands.set_node(0, "n1", word), "PSWORD")


@pytest.mark.parametrize("offer", ["", "gpu=1"])
def test_an_offer_without_slots_changes_nothing(busy: Driver, offer: str):
    refused_without_trace(
        busy, busy.commands.register_node(0, "n1", 0, 1.0, offer), "PSARGS register_node"
    )


def test_scripts_that_are_flushed_again_while_they_are_loaded_are_no_damage(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive.store.client.script_flush()
    monkeypatch.setattr(drive.store, "load_scripts", lambda *_: None)
    with pytest.raises(ServerUnreachable, match="has lost the script"):
        drive.submit("a")


def test_a_server_without_scripts_gets_those_of_the_call_and_no_other_is_put_together(
    store: Store,
) -> None:
    """A guard renews at once after a restart of the server, although no script is loaded."""
    store.client.script_flush()
    lines = (
        "from parsync_redis.store import Store\n"
        "from parsync_redis.store.scripts.calls import ALL_SCRIPTS\n"
        f"store = Store.from_url('redis://{store.address}/0', 'demo')\n"
        "print(store.run(store.commands.renew(0, 'n1', 1))[0])\n"
        "print(*(script.verb for script in ALL_SCRIPTS if script.is_made))\n"
    )
    ended = run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["lapsed", "renew"]
