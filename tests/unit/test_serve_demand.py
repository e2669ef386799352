"""The demand for machines with devices: they are protected, and amounts of devices count together,
as on real nodes.
"""

from dataclasses import replace

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from parsync_redis.inspect.tenancy import Tenancy
from parsync_redis.model.account_views import TenantView
from parsync_redis.model.devices import read_indexes
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.node import NodeState
from parsync_redis.model.views import KindView, NodeView
from parsync_redis.placement.columns import Columns
from parsync_redis.placement.preferences.ring import NodeRing, RingNodes, hashes_of
from parsync_redis.serve.demand import Machine, measure_demand
from parsync_redis.serve.metrics import render_metrics
from parsync_redis.serve.survey import Survey
from parsync_redis.serve.surveyor import LatestSurvey
from parsync_redis.store.reads.accounts import WarmKey
from parsync_redis.store.reads.demand import Counts

GIB = 2**30
HAS = {"gpu@0": 1, "gpu@1": 1, "gpu.mem@0": 24 * GIB, "gpu.mem@1": 24 * GIB}
LEFT = {"gpu@0": 0.5, "gpu@1": 1, "gpu.mem@0": 16 * GIB, "gpu.mem@1": 24 * GIB}
NODE = NodeView("n1", 0, NodeState.UP, False, 1, 1.0, 4, 3, 1, HAS, LEFT, {"zone": "a"})


def survey(**waiting):
    """Return a survey of the node, and of kinds: name -> (needs, how many)."""
    kinds = [
        KindView(name, name, needs, "", count, 0, "") for name, (needs, count) in waiting.items()
    ]
    return Survey(10_000, [], [NODE], [], kinds, [], {}, Counts(0, 0, 0, 0, 0, 0), [])


def machine(devices="gpu=0-1", memory="24GiB", shared=False):
    return Machine.of(
        4,
        {},
        {},
        (),
        {},
        devices=read_indexes("device", [devices]),
        of_devices={"gpu.mem": memory},
        shared=shared,
    )


def test_a_machine_with_devices_takes_only_tasks_that_ask_for_one_unless_it_shares_them():
    plain = survey(plain=("slots=1", 8), half=("slots=1 gpu=0.5", 2))
    assert measure_demand(plain, machine())["waiting_tasks"] == 2
    assert measure_demand(plain, machine(shared=True))["waiting_tasks"] == 10


def test_a_device_must_be_large_enough_and_its_node_is_like_the_machine():
    large = survey(large=(f"slots=1 gpu=1 gpu.mem={32 * GIB}", 3))
    found = measure_demand(large, machine())
    assert (found["waiting_tasks"], found["nodes"], found["held_slots"], found["machines"]) == (
        0,
        1,
        1,
        1,
    )
    assert measure_demand(large, machine(memory="48GiB"))["waiting_tasks"] == 3
    amounts = Machine.of(4, {"gpu": "2"}, {}, (), {})
    assert measure_demand(large, amounts)["nodes"] == 1
    assert measure_demand(large, Machine.of(4, {"fpga": "2"}, {}, (), {}))["nodes"] == 0


def test_machines_are_as_many_as_the_devices_that_wait_and_are_held_need():
    found = measure_demand(survey(whole=("slots=1 gpu=1", 5)), machine())
    assert (found["wanted_slots"], found["machines"]) == (6, 3), (
        "5.5 devices are three machines of two"
    )


def test_memory_of_devices_is_asked_of_each_device():
    found = measure_demand(
        survey(pair=(f"slots=1 gpu=2 gpu.mem={20 * GIB}", 2)), machine("gpu=0-7")
    )
    assert found["shapes"][0]["resources"] == {"gpu": 4.0, "gpu.mem": 80.0 * GIB}
    small = measure_demand(survey(small=(f"slots=1 gpu.mem={20 * GIB}", 4)), machine("gpu=0"))
    assert small["machines"] == 4, "80 GiB wait and 8 GiB are held, a machine has 24 GiB"


def test_metrics_have_the_devices_of_a_node_together():
    families = text_string_to_metric_families(
        render_metrics(LatestSurvey(survey(), 0.0, 0.1, "")).decode()
    )
    found = {
        (one.name, one.labels.get("resource")): one for family in families for one in family.samples
    }
    assert found["parsync_resource_amount", "gpu"].value == 2
    assert found["parsync_resource_left", "gpu"].value == 1.5
    assert found["parsync_resource_left", "gpu.mem"].value == 40 * GIB
    assert ("parsync_resource_amount", "gpu@0") not in found
    assert found["parsync_slots", None].labels["node_class"] == f"gpu=2 gpu.mem={48 * GIB} zone:a"


def plain(name, slots, state=NodeState.UP, held=0, **more):
    mem = {"mem": slots * 4}
    return NodeView(
        name, 0, state, False, 1, 1.0, slots, slots - held, held, mem, mem, {"name": name}, **more
    )


def survey_of(nodes, tenants=(), idle_s=600, **waiting):
    since = {node.name: 1_000_000 - 1000 * idle_s for node in nodes if not node.held}
    return replace(
        survey(**waiting),
        now_ms=1_000_000,
        nodes=nodes,
        tenancy=Tenancy(tenants),
        idle_since_ms=since,
    )


def test_a_shape_has_the_smallest_nodes_that_would_hold_it_and_their_number():
    nodes = [
        plain("big", 16),
        plain("small", 4),
        plain("tiny", 1),
        plain("gone", 2, NodeState.DOWN),
    ]
    waiting = {"two": ("slots=2", 5), "much": ("slots=1 mem=20", 3), "none": ("slots=40", 1)}
    shapes = measure_demand(survey_of(nodes, **waiting), Machine())["shapes"]
    assert {shape["needs"]: shape["node_class"] for shape in shapes} == {
        "slots=2": {"like": "small", "nodes": 3},
        "slots=1 mem=20": {"like": "big", "nodes": 1},
        "slots=40": None,
    }


class Incomparable(NodeView):
    """A node that counts how often its labels are listed, and that may not be compared."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        raise AssertionError("to compare nodes one with another takes too long")


class CountedLabels(dict[str, str]):
    """Labels that count how often they are listed."""

    listed = 0

    def items(self):
        self.listed += 1
        return super().items()


def test_the_demand_looks_at_a_node_as_often_whatever_waits_and_compares_no_nodes():
    labels = CountedLabels(zone="a")
    base = (0, NodeState.UP, False, 1, 1.0, 4, 4, 0, {"mem": 16}, {"mem": 16})
    nodes = [Incomparable("a", *base, {"zone": "a"}), Incomparable("b", *base, labels)]
    listed = []
    for shapes in (1, 50):
        waiting = {f"k{index}": (f"slots=1 mem={index + 1}", 1) for index in range(shapes)}
        labels.listed = 0
        shown = measure_demand(survey_of(nodes, **waiting), Machine())["shapes"]
        assert shown[0]["node_class"]["like"] == "a"
        listed.append(labels.listed)
    assert listed[0] == listed[1]
    assert measure_demand(survey_of(nodes), Machine())["idle_nodes"] == ["a", "b"]


def test_nodes_that_are_idle_for_long_could_go_unless_something_needs_them():
    nodes = [plain("a", 4), plain("b", 4), plain("c", 4, held=1), plain("d", 4, reserved="task x")]
    assert measure_demand(survey_of(nodes), Machine())["idle_nodes"] == ["a", "b"]
    assert measure_demand(survey_of(nodes, idle_s=299), Machine())["idle_nodes"] == []
    waits = survey_of(nodes, work=("slots=1", 1))
    assert measure_demand(waits, Machine())["idle_nodes"] == []
    guaranteed = TenantView("t", 1.0, 0.0, 1.0, {}, 0, 0, None, {"slots": 9}, {}, "age", "fair")
    below = replace(guaranteed, name="t/u")
    kept = survey_of(nodes, (guaranteed, below))
    assert measure_demand(kept, Machine())["idle_nodes"] == ["a"], "12 slots are enough for 9"


def test_a_node_that_leaves_is_not_idle_and_does_not_stand_in_for_the_others():
    nodes = [plain("a", 4, leaves_ms=1), plain("b", 4), plain("c", 4)]
    assert measure_demand(survey_of(nodes), Machine())["idle_nodes"] == ["b", "c"]
    guaranteed = TenantView("t", 1.0, 0.0, 1.0, {}, 0, 0, None, {"slots": 8}, {}, "age", "fair")
    assert measure_demand(survey_of(nodes, (guaranteed,)), Machine())["idle_nodes"] == []


def ring_of(key, nodes):
    """Return the names of nodes in the order of the ring of a key."""
    columns = Columns([Resources.of(node.slots) for node in nodes])
    hashes = hashes_of(node.name for node in nodes)
    fitting = np.full(len(nodes), True)
    ring = NodeRing.of(key, parse_needs("slots=1"), [RingNodes(hashes, columns, fitting)])
    places = ring.places[0].tolist()
    return [node.name for _, node in sorted(zip(places, nodes, strict=True))]


def idle_nodes(nodes, *keys):
    """Return which of these nodes could go while tasks count to these keys."""
    survey = replace(survey_of(nodes), warm_keys=[WarmKey(*key) for key in keys])
    return measure_demand(survey, Machine())["idle_nodes"]


def test_a_node_of_the_warm_set_of_a_key_stays_while_tasks_count_to_the_key():
    nodes = [plain(name, 2) for name in "abcdef"]
    ring = ring_of("llama", nodes)
    assert idle_nodes(nodes) == [*"abcdef"]
    # 70 % of 2 slots a node: two tasks need two nodes, four tasks three
    assert idle_nodes(nodes, ("llama", 1, "slots=1")) == sorted(ring[2:])
    assert idle_nodes(nodes, ("llama", 3, "slots=1")) == sorted(ring[3:])
    both = {*ring[2:]} & {*ring_of("mistral", nodes)[2:]}
    keys = ("llama", 1, "slots=1"), ("mistral", 1, "slots=1")
    assert idle_nodes(nodes, *keys) == sorted(both)


def test_the_warm_set_is_of_the_open_nodes_that_fit_and_counts_what_they_give():
    nodes = [
        plain("a", 4, queues=("gpus",)),
        plain("b", 4, queues=("gpus",)),
        plain("c", 4),
        plain("d", 4, queues=("gpus",), leaves_ms=1),
    ]
    assert idle_nodes(nodes, ("llama", 1, "slots=1 name:c")) == ["a", "b"]
    assert idle_nodes(nodes, ("llama", 6, "slots=1 celery.queue:gpus")) == ["c"]
    assert idle_nodes(nodes, ("llama", 1, "slots=1 gpu=1")) == ["a", "b", "c"], "no node fits"
    first, second = ring_of("llama", nodes[:2])
    needs = "slots=1 celery.queue:gpus"
    assert idle_nodes(nodes, ("llama", 1, needs)) == sorted([second, "c"])
    shrunk = [replace(node, capacity={"slots": 1} if node.name == first else {}) for node in nodes]
    assert idle_nodes(shrunk, ("llama", 1, needs)) == ["c"]


def test_nodes_are_counted_by_the_tasks_that_each_device_holds():
    half = measure_demand(survey(half=("slots=1 gpu=0.6", 12)), Machine())
    assert half["shapes"][0]["node_class"] == {"like": "n1", "nodes": 6}
    memory = measure_demand(survey(memory=(f"slots=1 gpu.mem={10 * GIB}", 12)), Machine())
    assert memory["shapes"][0]["node_class"] == {"like": "n1", "nodes": 3}
