"""The demand for machines with devices: they are protected, and amounts of devices count together,
as on real nodes.
"""

from prometheus_client.parser import text_string_to_metric_families

from parsync_redis.model.devices import read_indexes
from parsync_redis.model.node import NodeState
from parsync_redis.model.views import KindView, NodeView
from parsync_redis.serve.demand import Machine, measure_demand
from parsync_redis.serve.metrics import render_metrics
from parsync_redis.serve.survey import Survey
from parsync_redis.serve.surveyor import LatestSurvey
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
