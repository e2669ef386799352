"""Whatever is done to a key: within two leases the state is sound, what runs ends, nothing is lost,
new tasks run.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.store.repair.repair_all import repair_all
from parsync_redis.wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS
from tests.kit.damages import FAMILIES, WRONG, Damage, Scene, all_damages
from tests.kit.oracle.audit import audit
from tests.kit.rig import LEASE_S, PATIENCE_S, Rig

pytestmark = pytest.mark.serial
WHERE = "tests.kit.apps.marks.where"
GATED = "tests.kit.apps.marks.gated"
GET_S = 60


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    rig = new_rig()
    rig.schedulers(2, forget_s=1)  # a ghost's offer could be that of a node that left
    rig.worker("n1", slots=2, labels={"at": "n1"}, resources={"gpu": 4})
    rig.worker("n2", slots=2, labels={"at": "n2"}, resources={"gpu": 4})
    return rig


def make_dead(rig: Rig) -> str:
    """Make a dead task, as a node would that dies with it."""
    commands = rig.store.commands
    id = str(uuid.uuid4())
    options = TaskOptions.of(
        {"require": {"at": "grave"}, "wait_for_capacity": True, "max_starts": 1}
    )
    rig.store.run(commands.submit([Submission(id, WHERE, b"{}", options)]))
    kind = rig.store.records([id])[0].line
    assert kind is not None
    (task,) = rig.store.run(commands.take("t", [(kind.kind, 1)])).tasks
    place = Place(id, task.attempt, 0, "gone", (0,), 1, 1)
    started, back = rig.store.run_all(
        [commands.start([place]), commands.requeue([(place, "its node died")])]
    )
    assert (started[0][0], back) == ("ok", ["dead"]), (
        "in one request: the leader recovers what has a place and no lease"
    )
    return id


@pytest.fixture
def scene(rig: Rig) -> Iterator[Scene]:
    """Make a task in each state; end what is left of them afterwards."""
    nowhere: dict[str, Any] = {"require": {"at": "nowhere"}, "wait_for_capacity": True}
    key = f"run-{uuid.uuid4().hex[:6]}"
    ids = {
        "running": rig.client.submit(GATED, (key,), resources={"gpu": 1}, require={"at": "n1"}),
        "waiting": rig.client.submit(WHERE, expires=3600, **nowhere),
        "delayed": rig.client.submit(WHERE, countdown=3600, require={"at": "n1"}),
        "dead": make_dead(rig),
    }
    rig.until(lambda: rig.marks("held", key), "a task runs")
    scheduler = min(
        rig.until(lambda: rig.store.hash(rig.store.keys.shared("schedulers")), "schedulers renew")
    )
    try:
        yield Scene(rig.state, rig.store.keys, ids, rig.node("n1").partition, scheduler)
    finally:
        rig.open()
        for name, id in ids.items():
            rig.client.cancel(id) if name != "dead" else rig.store.run(
                rig.store.commands.purge("dead", [id])
            )
        if audit(rig.store):  # the test has failed: let the others begin with a sound state
            repair_all(rig.store)
        rig.until_idle()


def snapshot(client: Any, key: str) -> dict[Any, Any]:
    """Return the fields or members of a key, with their values."""
    kind = client.type(key)
    if kind == b"hash":
        return dict(client.hgetall(key))
    if kind == b"zset":
        return dict(client.zrange(key, 0, -1, withscores=True))
    if kind == b"set":
        return dict.fromkeys(client.smembers(key), True)
    if kind == b"list":
        return dict.fromkeys(client.lrange(key, 0, -1), True)
    return {"": client.get(key)} if kind == b"string" else {}


def unknown(rig: Rig) -> list[str]:
    """Return what submit does not know of the two nodes, for the audit does not look at that."""
    shapes, names, apps = (rig.store.keys.queue(kind) for kind in ("shapes", "names", "apps"))
    found = [
        f"submit does not know {node}"
        for node in ("n1", "n2")
        if not rig.state.hexists(shapes, node)
    ]
    return (
        found
        if found or (rig.state.hlen(names) and rig.state.zcard(apps))
        else ["submit knows no names"]
    )


@pytest.mark.parametrize("damage", all_damages(), ids=str)
def test_damage_is_noticed_and_rebuilt(rig: Rig, scene: Scene, damage: Damage) -> None:
    key = scene.key(damage.family, damage.kind)
    # otherwise the values read after the damage may be those that other processes wrote
    with ExitStack() as still:
        for process in rig.stack.alive():
            still.enter_context(rig.paused(process))
        before = snapshot(rig.state, key)
        damage.do(scene, key)
        after = snapshot(rig.state, key)
        kind = rig.state.type(key)
    written = {name: value for name, value in after.items() if before.get(name) != value}
    if damage.name in ("deleted", "of another type") or damage.kept:
        written = {}
    wanted = {
        "running": "running",
        "waiting": "waiting",
        "delayed": "waiting",
        "dead": "dead",
        **damage.becomes,
    }

    def wrong() -> list[str]:
        try:
            states = {name: rig.status(id).state for name, id in scene.ids.items()}
            found = [f"{name} is {states[name]}" for name in wanted if states[name] != wanted[name]]
            if damage.name == "of another type" and rig.state.type(key) == kind:
                found.append(f"{key} is a {kind.decode()} still")
            now = snapshot(rig.state, key)
            found += [
                f"{key} has {name!r} {value!r} still"
                for name, value in written.items()
                if now.get(name) == value
            ]
            return found or unknown(rig) or audit(rig.store)
        except Exception as error:  # a key of another type
            return [str(error)]

    seen: list[str] = []

    def sound() -> bool:
        seen[:] = wrong()
        return not seen

    try:
        rig.until(sound, f"all is sound after {damage}", 3 * LEASE_S)
    except BaseException:
        print("\n".join(seen))
        raise
    assert (
        rig.tasks.where.apply_async(parsync={"require": {"at": "n1"}}).get(timeout=GET_S)["node"]
        == "n1"
    )
    assert (
        rig.tasks.where.apply_async(parsync={"require": {"at": "n2"}}).get(timeout=GET_S)["node"]
        == "n2"
    )
    rig.open()
    rig.until_state(scene.ids["running"], "succeeded")
    rig.until_idle()
    assert {name: rig.status(id).state for name, id in scene.ids.items() if name != "running"} == {
        name: state for name, state in wanted.items() if name != "running"
    }


def test_each_kind_of_key_is_in_the_table() -> None:
    assert set(FAMILIES["queue"]) == {*QUEUE_KINDS, "pending", "extra"}
    assert set(FAMILIES["partition"]) == {*PARTITION_KINDS, "inbox"}
    assert set(FAMILIES["cluster"]) == {*CLUSTER_KINDS, "stats"}
    assert {(family, kind) for family, kinds in FAMILIES.items() for kind in kinds} == WRONG.keys()
    assert PATIENCE_S > 3 * LEASE_S
