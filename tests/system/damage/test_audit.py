"""The oracle and `doctor --audit` name nothing sound of a busy cluster, and still name damage that
is planted meanwhile.
"""

import threading
from collections.abc import Iterator

import pytest

from parsync_redis.model.task import Submission
from parsync_redis.store import Store
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.servers import unsound
from tests.kit.waiting import until

TASKS = 3000


@pytest.fixture
def busy(store: Store) -> Iterator[list[int]]:
    """Take, place, run, lose and submit tasks of a cluster all the time; yield the count of tasks
    that ended.
    """
    drive = Driver(store)
    done = threading.Event()
    ended = [0]
    trouble = list[BaseException]()
    for i in range(8):
        drive.node(f"n{i}", slots=4)
    for at in range(0, TASKS, 500):
        store.run(
            store.commands.submit([Submission(f"old{at + i}", "work", b"{}") for i in range(500)])
        )

    def work(other: Store, number: int) -> None:
        drive = Driver(other)
        turn = 0
        nodes = [node for node in other.nodes(0).values() if int(node.name[1:]) % 2 == number]
        try:
            while not done.is_set():
                turn += 1
                ids = [f"w{number}.{turn}.{i}" for i in range(4)]
                other.run(
                    other.commands.submit([Submission(id, f"work{turn % 3}", b"{}") for id in ids])
                )
                taken = drive.take_tasks(f"s{number}", limit=4)
                for at, task in enumerate(taken):
                    node = nodes[turn % len(nodes)]
                    place = drive.held(
                        task.id, task.attempt, node=node.name, slots=(at % 4,), inc=node.inc
                    )
                    assert drive.start(place) == "ok"
                    if at % 4:
                        assert drive.finish(place) == "ok"
                    else:
                        drive.requeue(place)
                    assert drive.release(place) == "freed"
                    ended[0] += 1
        except BaseException as error:
            trouble.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=(store.with_own_connections(), number), daemon=True)
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    yield ended
    done.set()
    for thread in threads:
        thread.join(timeout=60)
    assert not trouble


@pytest.mark.unaudited
def test_a_busy_cluster_is_sound_and_damage_in_it_is_named(store: Store, busy: list[int]) -> None:
    until(lambda: busy[0] > 20, "tasks run")
    for _ in range(8):
        before = busy[0]
        assert audit(store) == []
        assert unsound(store) == []
        assert busy[0] > before, "it was busy meanwhile"
    shard = store.keys.shard_of("old2999")
    store.client.hdel(store.keys.queue("messages", shard), "old2999")
    store.client.hset(store.keys.partition(0, "left"), "n99", "gpu=1")
    findings = audit(store)
    assert "task old2999 has no message" in findings
    assert "p0: amounts are left of n99, which is no node" in findings
    assert len(findings) == 2, findings
    places = sorted(fault.partition("}:")[2] for fault in unsound(store))
    assert [place.partition(": ")[0] for place in places] == ["left n99", "tasks old2999"]
    said = list[str]()
    audit(store, said.append)
    assert any("tasks were read" in text for text in said)
