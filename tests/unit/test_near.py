"""A task near another goes to that one's node, and anywhere once that node is down or forgotten."""

from dataclasses import replace

import numpy as np
import pytest

from parsync_redis import Infeasible, InvalidInput
from parsync_redis.model.ids import encode_id
from parsync_redis.model.near import near_label, near_of, settled
from parsync_redis.model.needs import Resources, are_needs, parse_needs
from parsync_redis.model.node import Node
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.preferences import SoftRule, preferences_of
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.task import Submission, TaskState
from parsync_redis.near import near_node, resolve_near
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.now import obstacles
from parsync_redis.placement.reasons import explain_waiting
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import claims_of, make, waiting
from tests.kit.driver import Driver

NEAR = Resources.needed(reserved=[near_label("b@1")])


def cluster(**states: str) -> tuple[Core, list[Node]]:
    core = make()
    nodes = [
        Node(name.replace("_", "@"), state, 1, 0, 2 * at, 2, 1.0, Resources.of(2))
        for at, (name, state) in enumerate(states.items())
    ]
    read(core, nodes, 1)
    return core, nodes


def read(core: Core, nodes: list[Node], epoch: int) -> None:
    bits = np.packbits([node.state == "up" for node in nodes for _ in range(2)]).tobytes()
    core.on_nodes(0, nodes, epoch)
    core.on_snapshot(Snapshot(0, epoch, epoch, bits, {}), 0.0)
    core.plan(place=False, confirm=False)


def test_the_node_is_a_label_of_needs_and_names_of_nodes_survive_it() -> None:
    assert NEAR.text == "slots=1 parsync.near:b%401"
    assert are_needs(NEAR.text)
    assert near_of(parse_needs(NEAR.text)) == "b@1"
    assert near_of(Resources.needed()) == ""


@pytest.mark.parametrize(
    ("needs", "alive", "now"), [(NEAR, {"b@1"}, NEAR), (NEAR, {"a"}, Resources.needed())]
)
def test_a_node_that_is_not_alive_does_not_count(
    needs: Resources, alive: set[str], now: Resources
) -> None:
    assert settled(needs.text, alive) == now.text


def test_the_core_uses_that_node_only_until_it_is_down() -> None:
    core, nodes = cluster(a="up", b_1="up", c="up")
    queue = waiting(core, 4, NEAR.text)
    assert sorted(claims_of(queue.turn())) == ["b@1/0", "b@1/1"]
    assert core.view.explain(NEAR) == "only node b@1 fits: it is full"
    assert not claims_of(queue.turn())
    read(core, [replace(node, state="down") if node.name == "b@1" else node for node in nodes], 2)
    assert len(claims_of(queue.turn())) == 2


def test_reasons_name_the_node() -> None:
    nodes = [
        NodeFacts(name, "up", False, Resources.of(1), free) for name, free in (("a", 1), ("b@1", 0))
    ]
    assert explain_waiting(NEAR, nodes) == "only node b@1 fits: it is full"
    assert [o.why for o in obstacles(NEAR, nodes[0])] == ["is not b@1, where the task must be"]
    many = Resources.needed(2, reserved=[near_label("b@1")])
    assert (
        explain_waiting(many, nodes)
        == "no node fits: task needs slots=2; the largest node has 1 (b@1)"
    )


def wants(near: str, **more: object) -> Submission:
    return Submission("x", "work", b"", TaskOptions.of({"near": near, **more}))


def test_submit_takes_the_node_where_the_other_runs_or_ran_last(fake_store):
    drive = Driver(fake_store)
    drive.bring(TaskState.RUNNING, "a")
    (task,) = resolve_near(fake_store, [wants("a")])
    assert task.options.needs.text == "slots=1 parsync.near:n1"
    assert task.options.near == ""
    drive.bring(TaskState.SUCCEEDED, "b")
    assert near_of(resolve_near(fake_store, [wants("b")])[0].options.needs) == "n1"
    assert near_of(near_node(fake_store, wants("b").options).needs) == "n1"
    plain = [Submission("y", "work", b"")]
    assert resolve_near(fake_store, plain) is plain


def test_a_task_that_went_back_is_near_where_it_ran_last(fake_store):
    drive = Driver(fake_store)
    drive.requeue(drive.bring(TaskState.RUNNING, "a"))
    assert near_of(resolve_near(fake_store, [wants("a")])[0].options.needs) == "n1"


@pytest.mark.parametrize(
    ("near", "why"),
    [
        (
            "unknown",
            "near='unknown' is not valid: no task with that id is known, or it is forgotten",
        ),
        ("x", "near='x' is not valid: a task cannot be near itself"),
        (
            "waits",
            "near='waits' is not valid: it must be the id of a task that runs or has run; that "
            "one has had no",
        ),
    ],
)
def test_a_task_without_a_node_is_one_clear_error(fake_store, near: str, why: str):
    Driver(fake_store).submit("waits")
    with pytest.raises(InvalidInput, match=why):
        resolve_near(fake_store, [wants(near)])
    successor = wants(near)._replace(after="1@1")
    assert resolve_near(fake_store, [successor])[0].options.needs.text == "slots=1", (
        "a retry is not refused"
    )


def test_a_node_that_can_never_hold_the_task_is_named_with_what_it_lacks(fake_store):
    drive = Driver(fake_store)
    drive.bring(TaskState.RUNNING, "a")
    drive.run(drive.offer("n1", "slots=2 gpu=1"))
    why = (
        r"near='a' means node n1, which lacks gpu=2 \(has 1\) \(task work; wait_for_capacity=True "
        r"would let it wait\)"
    )
    with pytest.raises(Infeasible, match=why):
        resolve_near(fake_store, [wants("a", resources={"gpu": 2})])
    assert resolve_near(fake_store, [wants("a", resources={"gpu": 2}, wait_for_capacity=True)])


def wishes(*tasks: str) -> Submission:
    prefer = ["zone=a", *(f"near:{task}" for task in tasks)]
    return Submission("x", "work", b"", TaskOptions.of({"prefer": prefer}))


def test_a_wish_to_be_near_becomes_the_node_in_the_preferences(fake_store):
    drive = Driver(fake_store)
    drive.bring(TaskState.RUNNING, "a")
    drive.bring(TaskState.SUCCEEDED, encode_id("b: 1,2"))
    (task,) = resolve_near(fake_store, [wishes("a", "b: 1,2")])
    assert task.options.prefer == "zone:a,parsync.near:n1", "each node comes once"
    assert task.options.needs.text == "slots=1", "it is no requirement"
    assert near_node(fake_store, wishes("a").options) == task.options
    assert preferences_of(task.options.prefer)[-1] == SoftRule("near", "n1")
    assert resolve_near(fake_store, [task]) == [task], "a retry keeps the node"


@pytest.mark.parametrize(
    ("near", "why"),
    [
        ("unknown", "no task with that id is known, or it is forgotten"),
        ("x", "a task cannot be near itself"),
        ("waits", "it must be the id of a task that runs or has run; that one has had no node yet"),
    ],
)
def test_a_wish_to_be_near_a_task_without_a_node_is_refused_as_the_need_is(
    fake_store, near: str, why: str
):
    Driver(fake_store).submit("waits")
    with pytest.raises(InvalidInput, match=f"^prefer 'near:{near}' is not valid: {why}$"):
        resolve_near(fake_store, [wishes(near)])
    successor = wishes(near)._replace(after="1@1")
    assert resolve_near(fake_store, [successor])[0].options.prefer == "zone:a"
