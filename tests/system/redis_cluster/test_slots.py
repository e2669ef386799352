"""Slots that move while scripts run: none runs while its slot is in two places, and nothing is lost
or done twice.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.task import Submission
from parsync_redis.store import Store
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.driver import Driver, dump
from tests.kit.moving import Move, can_move_at_once
from tests.kit.sample import sample_calls
from tests.kit.servers import patient
from tests.kit.waiting import joined, until
from tests.store.lua.test_refusals import busy_cluster


@pytest.mark.parametrize("carried", ["nothing", "some", "all"])
def test_no_script_runs_while_its_slot_is_in_two_places(
    spread: Store, cluster: EmbeddedCluster, carried: str
):
    calls = sample_calls(busy_cluster(Driver(spread)).commands)
    spread.run(spread.commands.configure({"partitions": 1}))
    before = dump(spread)
    tags = {call.keys[0].partition("}")[0]: call.keys[0] for call in calls.values()}
    moves = [Move(cluster, key) for key in tags.values()]
    for move in moves:
        move.begin()
        if carried == "some":
            move.carry(1)
        while carried == "all" and move.carry(1):
            pass
    answers = dict(zip(calls, spread.run_each(list(calls.values())), strict=True))
    state = dump_both(spread)
    for move in moves:
        while move.carry():
            pass
        move.end()
    assert {
        verb: reply for verb, reply in answers.items() if not isinstance(reply, ServerUnreachable)
    } == {}
    assert state == {key: value for key, (value, _) in before.items()}, (
        "something was written meanwhile"
    )
    assert dump(spread) == before
    bring_back(cluster, moves)

    def runs() -> bool:
        """Return whether the task runs, as all servers say once they agree who has its slot."""
        with suppress(ServerUnreachable):
            return bool(spread.run(calls["read_tasks"])[0].state == "running")
        return False

    until(runs)


def dump_both(store: Store) -> dict[bytes, Any]:
    """Return the keys of all primaries with their values, wherever they are."""
    found: dict[bytes, Any] = {}
    for server in store.servers().values():
        assert server is not None
        names = server.client.scan_iter(count=1000)
        for name in names:
            with server.client.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING")
                pipe.type(name)
                kind = pipe.execute()[1]
                pipe.execute_command("ASKING")
                {b"hash": pipe.hgetall, b"set": pipe.smembers}.get(kind, pipe.dump)(name)
                assert name not in found, "a key is in two places"
                found[name] = pipe.execute()[1]
    return found


def bring_back(cluster: EmbeddedCluster, moves: list[Move]) -> None:
    """Move slots back to where they were."""
    for move in moves:
        move.source, move.target = move.target, move.source
        move.whole()


@pytest.fixture(params=["key by key", "at once"])
def move_slot(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Callable[[Move], None]:
    """Return how a slot is moved."""
    if request.param == "key by key":
        return Move.whole
    if not can_move_at_once(cluster):
        pytest.skip("this server moves slots key by key only")
    return Move.at_once


def test_calls_go_on_while_their_slots_move_there_and_back(
    spread: Store, cluster: EmbeddedCluster, move_slot: Callable[[Move], None]
):
    drive = Driver(spread)
    done = threading.Event()
    trouble = list[Exception]()
    words = list[str]()
    drive.node("n1", 4)

    def submit() -> None:
        store = patient(spread.with_own_connections())
        number = 0
        try:
            while not done.is_set():
                number += 1
                calls = [
                    store.commands.submit([Submission(f"t{number}", "work", b"m")]),
                    *reads(store),
                ]
                words.append(store.run_all(calls)[0][0])
        except Exception as error:
            trouble.append(error)
        finally:
            store.disconnect()

    def reads(store: Store) -> list[Any]:
        return [store.commands.read_partition(0), store.commands.renew(0, "n1", 1)]

    submitter = threading.Thread(target=submit)
    submitter.start()
    try:
        for _ in range(3):
            for key in (spread.keys.queue("meta"), spread.keys.partition(0, "meta")):
                move = Move(cluster, key)
                move_slot(move)
                move.source, move.target = move.target, move.source
                move_slot(move)
    finally:
        done.set()
        joined(submitter)
    assert trouble == []
    assert set(words) == {"submitted"}
    kinds = spread.hash(spread.keys.queue("kinds"))
    assert [line.split()[0] for line in kinds.values()] == [str(len(words))]
    assert spread.client.zcard(spread.keys.pending("work slots=1")) == len(words)


def test_a_read_of_a_key_that_has_moved_already_is_answered_by_its_new_primary(
    spread: Store, cluster: EmbeddedCluster
):
    key = spread.keys.shared("config")
    spread.client.hset(key, "partitions", 8)
    move = Move(cluster, key)
    move.begin()
    assert spread.config() == {"partitions": "8"}
    move.carry()
    assert spread.config() == {"partitions": "8"}, "ASK"
    move.end()
    assert spread.config() == {"partitions": "8"}, "MOVED"
    bring_back(cluster, [move])
