"""`parsync explain` and `parsync plan` tell the truth about a cluster of real processes: node,
amount, holder, time.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.explanation import Outlook
from tests.kit import REPO
from tests.kit.apps.project import PROJ
from tests.kit.waiting import until

pytestmark = pytest.mark.serial
GPU: dict[str, Any] = {"require": {"kind": "gpu"}, "resources": {"gpu": 0.5}}


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalStack, ParsyncClient]]:
    """Yield a stack with a scheduler, and its client; n1 has two slots and half a GPU, n2 a slot
    without one, n3 is drained.
    """
    folder: Path = tmp_path_factory.mktemp("explain")
    (folder / "proj.py").write_text(PROJ)
    options: dict[str, Any] = {
        "sink": lambda name, line: print(name, line),
        "env": {"PYTHONPATH": str(REPO)},
    }
    with LocalStack("demo", cwd=folder, grace_s=3, **options) as stack:
        url = stack.server()
        stack.scheduler(1)
        stack.worker(
            "proj", "n1", 2, labels={"kind": "gpu"}, resources={"gpu": "0.5"}, pool="threads"
        )
        stack.worker("proj", "n2", 1, labels={"kind": "cpu"}, pool="solo")
        stack.worker("proj", "n3", 1, labels={"kind": "gpu"}, resources={"gpu": 4}, pool="solo")
        with ParsyncClient.from_url(url, "demo") as client:
            until(lambda: len(client.nodes()) == 3, "three nodes are up", 60)
            client.drain("n3", reason="a new disk")
            yield stack, client


def test_a_waiting_task_names_the_nearest_node_what_it_lacks_the_holder_and_its_end(
    stacked: Any,
) -> None:
    stack, client = stacked
    learnt = client.submit("proj.render", [2.0], **GPU)
    client.wait([learnt], 180)
    until(
        lambda: [one for one in client.names() if one.name == "proj.render"],
        "its run time is learnt",
    )
    holder = client.submit("proj.render", [0, "gate"], **GPU)
    until(lambda: client.status(holder).state.value == "running", "it runs")
    waiting = client.submit("proj.render", [0], **GPU)
    second = client.submit("proj.render", [0], **GPU)
    explanation = client.explain(second)
    assert explanation.outlook is Outlook.WAITS
    assert (explanation.nearest, explanation.ahead, explanation.ahead_alike) == ("n1", 1, 1)
    assert [(one.node, one.task, one.name) for one in explanation.holders] == [
        ("n1", holder, "proj.render")
    ]
    assert (explanation.start, explanation.no_forecast) == (
        None,
        "fewer than 10 runs of proj.render are known",
    )
    by_node = {
        name: [o.rule for o in some.obstacles]
        for some in explanation.classes
        for name in some.nodes
    }
    assert by_node == {"n1": ["free resources"], "n2": ["resources", "labels"], "n3": ["state"]}
    short = explanation.classes[0].obstacles[0]
    assert (short.what, short.short) == ("gpu", 0.5)
    assert {"parsync nodes undrain n3", "0.5 more of gpu free on n1"} <= {*explanation.remedies}
    printed = stack_output(stack, "explain", second)
    assert "n1 is held by " + holder in printed
    assert "when it starts is not known yet: fewer than 10 runs of proj.render are known" in printed
    assert "lacks kind:gpu" in printed
    client.store.client.set("gate", "open")
    client.wait([holder, waiting, second], 180)


def test_a_plan_says_now_waits_or_never_and_submits_nothing(stacked: Any) -> None:
    _, client = stacked
    before = submissions(client)
    assert client.plan("proj.render", require={"kind": "cpu"}).outlook is Outlook.NOW
    never = client.plan("proj.render", resources={"gpu": 5})
    assert never.outlook is Outlook.NEVER
    assert "the most is 4 (n3)" in never.why
    waits = client.plan("proj.render", resources={"gpu": 3})
    assert waits.outlook is Outlook.WAITS
    assert waits.remedies == ("parsync nodes undrain n3",)
    unknown = client.plan("proj.unknown")
    assert unknown.outlook is Outlook.NEVER
    assert {o.rule for some in unknown.classes for o in some.obstacles} >= {"name"}
    assert submissions(client) == before


def submissions(client: Any) -> list[int]:
    """Return for each shard how many tasks were submitted, and how many have a record and a
    message.
    """
    keys = client.store.keys
    redis = client.store.client
    numbers = [int(redis.hget(meta, "submitted") or 0) for meta in keys.queues("meta")]
    return numbers + [
        redis.hlen(key) for kind in ("tasks", "messages") for key in keys.queues(kind)
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--require", "kind=cpu"], 0), (["--resource", "gpu=3"], 1), (["--resource", "gpu=5"], 2)],
)
def test_the_exit_code_of_a_plan_is_its_outlook(stacked: Any, words: list[str], code: int) -> None:
    stack, _ = stacked
    answer = json.loads(stack_output(stack, "plan", "proj.render", *words, "--json", code=code))
    assert answer["outlook"] == ["now", "waits", "never"][code]


def test_a_placed_task_says_who_chose_its_place_from_how_many_nodes_and_by_what_score(
    stacked: Any,
) -> None:
    stack, client = stacked
    id = client.submit("proj.render", [5], require={"kind": "cpu"})
    choice = until(lambda: client.explain(id).choice, "a scheduler has noted its choice", 30)
    assert (choice.scheduler, choice.node, choice.rank, choice.lost_to) == (
        "scheduler-1",
        "n2",
        1,
        (),
    )
    left = {step.rule: step.nodes for step in choice.steps}
    assert left == {
        "nodes": 3,
        "name": 3,
        "near": 3,
        "slots": 3,
        "resources": 3,
        "labels": 1,
        "taints": 1,
        "protection": 1,
        "state": 1,
        "free": 1,
    }
    assert 0 <= choice.age_s < 60
    assert "candidates: 3 nodes -> 3 name" in stack_output(stack, "explain", id)
    client.wait([id], 60)
    assert client.explain(id).choice == choice, "it is there after the end, too"


def test_a_task_that_has_ended_or_is_not_known_says_so(stacked: Any) -> None:
    stack, client = stacked
    id = client.submit("proj.render", [0], require={"kind": "cpu"})
    client.wait([id], 60)
    explanation = client.explain(id)
    assert (explanation.outlook, explanation.node) == (Outlook.ENDED, "n2")
    assert client.explain("none").outlook is Outlook.GONE
    assert "nothing is known of it" in stack_output(stack, "explain", "none", code=1)


def stack_output(stack: LocalStack, *words: str, code: int = 0) -> str:
    """Return the standard output of a command, which must end with this code."""
    env = {
        **os.environ,
        "PARSYNC_URL": str(stack.url),
        "PARSYNC_CLUSTER": "demo",
        "PYTHONPATH": str(REPO),
    }
    done = subprocess.run(
        [sys.executable, "-m", "parsync_redis.cli", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
