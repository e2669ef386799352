"""/api/v1 of a real `parsync serve`: the lists of the commands, in pages; the demand for machines;
errors in JSON.
"""

import json
import sys
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.model.ids import encode_id
from parsync_redis.model.needs import Resources
from parsync_redis.model.taints import offered_taints
from parsync_redis.model.task import TaskState
from parsync_redis.store.policy import change_policy
from tests.kit import REPO
from tests.kit.servers import PRIMARIES
from tests.kit.serving import serving, url_of
from tests.kit.waiting import run
from tests.system.serve.test_serve import set_up

pytestmark = [
    pytest.mark.serial,
    pytest.mark.one_server(0),
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
V1 = "/api/v1"


@pytest.fixture
def driver(store):
    """Return the driver of a cluster with two nodes, tasks that wait, one that is held, and one
    that is dead.
    """
    driver = set_up(store)
    policy = "[tenants.acme]\n[limits.stripe]\nat_once = 5"
    change_policy(store, lambda _: policy, "maria")
    driver.node("n1", 4, {"gpu": 4}, {"gpu_model": "a100"})
    driver.node("n2", 8, {"mem": 64}, p=1)
    offer = Resources.of(2, None, {"zone": ["a", "b"]}, offered_taints(["spot"])).text
    driver.run(driver.commands.register_node(1, "n3", 0, 1.0, offer))
    driver.bring(TaskState.DEAD, "dead")
    attempt = driver.taken(
        "held", {"slots": 2, "resources": {"gpu": 3}, "require": {"gpu_model": "a100"}}
    )
    driver.start(driver.held("held", attempt, slots=(0, 1), needs="slots=2 gpu=3 gpu_model:a100"))
    a100 = {"slots": 2, "resources": {"gpu": 1}, "require": {"gpu_model": "a100"}}
    for at in range(5):
        driver.submit(f"a{at}", a100, name="proj.train")
    driver.submit(encode_id("b/ä 1%2F"), {"priority": 9}, name="proj.render")
    driver.submit(
        "spot", {"slots": 2, "tolerate": ["spot"], "require": {"zone": "a"}}, name="proj.spot"
    )
    return driver


@pytest.fixture
def serve(driver):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        yield serve


def printed(driver, *words):
    """Return what a command prints with --json."""
    env = {"PARSYNC_URL": url_of(driver.store), "PARSYNC_CLUSTER": driver.store.keys.cluster}
    return json.loads(CliRunner().invoke(app, [*words, "--json"], env=env).stdout)


def test_a_list_is_what_the_command_lists(driver, serve):
    for path, command in (
        ("nodes", "nodes"),
        ("kinds", "demand"),
        ("names", "names"),
        ("schedulers", "schedulers"),
        ("tenants", "tenants"),
        ("limits", "limits"),
    ):
        status, found = serve.json(f"{V1}/{path}")
        assert (status, found["items"]) == (200, printed(driver, command))
        assert (found["total"], found["limit"], found["offset"]) == (len(found["items"]), 100, 0)
        assert bool(found["items"]) == (path not in ("names", "schedulers"))
        assert (found["stale"], found["age_s"] < 5, found["now_ms"] > 0) == (False, True, True)


def test_partitions_tasks_a_task_and_its_explanation_are_what_the_commands_print(driver, serve):
    partitions = serve.json(f"{V1}/partitions")[1]
    assert {"partitions": partitions["items"], "evenness": partitions["evenness"]} == printed(
        driver, "partitions"
    )
    assert serve.json(f"{V1}/tasks")[1]["items"] == printed(driver, "tasks")
    waiting = serve.json(f"{V1}/tasks", state="waiting", limit=2)[1]["items"]
    assert [(task["id"], task["state"]) for task in waiting] == [
        ("b/ä 1%2F", "waiting"),
        ("a0", "waiting"),
    ]
    for id in ("a0", "held", "dead", "b/ä 1%2F"):
        assert serve.json(f"{V1}/tasks/{id}")[1]["task"] == printed(driver, "status", id)
        status, found = serve.json(f"{V1}/explain/{id}")
        right = printed(driver, "explain", id)
        assert status == 200
        assert {**found["explanation"], "now_ms": 0} == {**right, "now_ms": 0}
    assert serve.json(f"{V1}/tasks/none")[0] == serve.json(f"{V1}/explain/none")[0] == 404
    assert serve.json(f"{V1}/tasks/none")[1]["task"]["state"] == "gone"


def test_pages_and_filters(serve):
    names = [node["name"] for node in serve.json(f"{V1}/nodes", limit=2)[1]["items"]]
    page = serve.json(f"{V1}/nodes", limit=2, offset=2)[1]
    assert (names, [node["name"] for node in page["items"]], page["total"]) == (
        ["n1", "n2"],
        ["n3"],
        3,
    )
    assert serve.json(f"{V1}/nodes", state="down")[1]["items"] == []
    assert serve.json(f"{V1}/nodes/n2")[1]["node"]["slots"] == 8
    answer = serve.json(f"{V1}/kinds", name="proj.t*")[1]
    assert [(kind["name"], kind["waiting"]) for kind in answer["items"]] == [("proj.train", 5)]


def test_tasks_are_listed_by_tenant_and_limit_as_the_command_lists_them(driver, serve):
    accounts = {"of-anna": "acme/anna", "of-acme": "acme", "of-shop": "shop"}
    for id, tenant in accounts.items():
        limits = ["stripe"] if id != "of-acme" else []
        driver.submit(id, {"tenant": tenant, "limits": limits})
    driver.cancel("of-shop")
    for query, right in (
        ({"tenant": "acme"}, ["of-acme", "of-anna"]),
        ({"tenant": "acme", "under": "stripe"}, ["of-anna"]),
        ({"under": "stripe"}, ["of-anna"]),
        ({"under": "stripe", "state": "cancelled"}, ["of-shop"]),
    ):
        tasks = serve.json(f"{V1}/tasks", **query)[1]["items"]
        assert sorted(task["id"] for task in tasks) == right
        flags = [word for name, value in query.items() for word in (f"--{name}", value)]
        ids = [task["id"] for task in printed(driver, "tasks", *flags)]
        assert sorted(ids) == right
        status, page, _ = serve.get_exactly(f"/view/tasks?{urlencode(query)}")
        assert status == 200
        assert {id for id in (*accounts, "held") if f">{id}</a>" in page} == set(right)


WRONG = (
    ("/nodes?limit=0", 400, "limit='0' is not valid: it must be a whole number from 1 to 1000"),
    ("/nodes?limit=1e3", 400, "limit='1e3' is not valid"),
    ("/nodes?offset=-1", 400, "offset='-1' is not valid"),
    ("/nodes?limit=1&limit=2", 400, "parameter limit is given 2 times, which is too often"),
    ("/nodes?color=red", 400, "unknown parameter 'color': known are state, limit, offset"),
    (
        "/nodes?state=green",
        400,
        "state='green' is not known: known are up, draining, suspect, leaving, down",
    ),
    ("/nodes/n9", 404, "no node 'n9'"),
    ("/tasks?state=lost", 400, "state='lost' is not known: known are waiting, placed, running"),
    ("/tasks?offset=1", 400, "unknown parameter 'offset': known are state, tenant, under, limit"),
    ("/tasks?tenant=a/b/c/d", 400, "up to three words with / between"),
    ("/tasks?under=a%20b", 400, "limit 'a b' is not valid"),
    ("/kinds?name=" + "*" * 256, 400, "parameter name has 256 characters: there may be 255"),
    (
        "/demand?taint=a&taint=" + "b" * 256,
        400,
        "parameter taint has 256 characters: there may be 255",
    ),
    ("/tasks/" + "x" * 256, 400, "is not valid: it must be a text of 1 to 255 characters"),
    ("/demand?require=gpu", 400, "require 'gpu' is not valid: it must be one of NAME=A"),
    ("/demand?resource=gpu=much", 400, "resource gpu='much' is not an amount"),
    ("/demand?device=0-3", 400, "device '0-3' is not valid: it must be KIND=INDEXES"),
    ("/demand?device=gpu=0&device_resource=fpga.mem=1", 400, "the node has no device 'fpga'"),
    ("/demand?shared_devices=no", 400, "shared_devices='no' is not known: known are true"),
    ("/demand?label=zone", 400, "label='zone' is not valid: it must be NAME=VALUE"),
    ("/demand?label=a=b&slots=0", 400, "slots='0' is not valid: it must be a whole number from 1"),
    ("/demand?" + "&".join(["taint=a"] * 65), 400, "parameter taint is given 65 times"),
    ("/none", 404, "there is no /api/v1/none: see /api/v1"),
)
"""Paths, each with the status and a part of the error that it is answered with."""


def test_an_error_is_answered_in_json(serve):
    """Each wrong request gets its status and one sentence as JSON; one server answers all requests."""
    for path, status, error in WRONG:
        found, body, _ = serve.get_exactly(f"{V1}{path}")
        assert (found, json.loads(body)["status"]) == (status, status), path
        assert error in json.loads(body)["error"], path


def test_the_demand_is_of_the_machine_that_could_be_added(serve):
    def demand(**query):
        return serve.json(f"{V1}/demand", **query)[1]

    every = demand()
    assert (
        every["waiting_tasks"],
        every["waiting_slots"],
        every["held_slots"],
        every["machines"],
    ) == (7, 13, 2, None)
    assert [
        (shape["needs"], shape["waiting"], shape["slots"], shape["resources"])
        for shape in every["shapes"]
    ] == [
        ("slots=2 gpu=1 gpu_model:a100", 5, 10, {"gpu": 5.0}),
        ("slots=2 parsync.taint:spot zone:a", 1, 2, {}),
        ("slots=1", 1, 1, {}),
    ]
    asked = demand(require="gpu_model=a100")
    assert (asked["waiting_tasks"], asked["wanted_slots"], asked["nodes"]) == (5, 12, 1)
    machine = demand(slots=4, resource="gpu=4", label="gpu_model=a100")
    assert (machine["waiting_tasks"], machine["waiting_slots"]) == (6, 11), (
        "a task that fits anywhere fits there too"
    )
    assert (
        machine["held_slots"],
        machine["wanted_slots"],
        machine["nodes"],
        machine["machines"],
    ) == (2, 13, 1, 4)
    only = demand(slots=100, resource="gpu=4", label="gpu_model=a100", require="gpu_model=a100")
    assert (only["wanted_slots"], only["machines"]) == (12, 2), (
        "5 waiting GPUs and 3 held ones are two machines"
    )
    spot = demand(slots=2, label="zone=a", taint="spot", name="proj.s*")
    assert (spot["waiting_tasks"], spot["machines"], spot["nodes"]) == (1, 1, 1)
    gpus = {
        "slots": 4,
        "device": "gpu=0-3",
        "device_resource": "gpu.mem=24GiB",
        "label": "gpu_model=a100",
    }
    assert demand(**gpus)["waiting_tasks"] == 5, "its devices are kept for tasks that ask for some"
    assert demand(**gpus, shared_devices="true")["waiting_tasks"] == 6
    small = demand(slots=1)
    assert (small["waiting_tasks"], small["waiting_slots"]) == (1, 1)


def test_a_script_gets_the_number_of_machines(serve, tmp_path):
    told = tmp_path / "told"
    command = [sys.executable, "-c", f"import sys; open({str(told)!r}, 'w').write(sys.argv[1])"]
    url = f"{serve.url}{V1}/demand?slots=4&resource=gpu=4&label=gpu_model=a100"
    program = [sys.executable, REPO / "deploy/autoscale.py"]
    run([*program, url, "--most", "10", "--once", "--", *command], 60, check=True)
    assert told.read_text() == "4"
    run([*program, url, "--most", "3", "--once", "--", *command], 60, check=True)
    assert told.read_text() == "3"
    done = run(
        [*program, f"{serve.url}/none", "--most", "3", "--once", "x"],
        60,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "nothing changes" in done.stderr) == (1, True)


def test_without_a_survey_the_api_answers_with_an_error():
    with serving("redis://127.0.0.1:1/0", "demo") as serve:
        status, found = serve.json(f"{V1}/nodes")
        assert (status, found["status"]) == (503, 503)
        assert "the cluster was not read yet" in found["error"]
        status, found = serve.json(f"{V1}/tasks/a")
        assert (status, "127.0.0.1" in found["error"]) == (503, True)
        assert "/api/v1/demand" in serve.json("/api/v1")[1]["paths"]
