"""No code change: CELERY_LOADER and rules place the tasks of an app that knows nothing
of parsync.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import REPO
from tests.kit.rig import CLUSTER, Rig

pytestmark = pytest.mark.serial
RULES = '[place]\n"untouched.*" = { slots = 2, require = { kind = "loaded" } }\n'


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    return new_rig()


def test_an_unmodified_app_is_placed_by_its_clients_and_run_by_its_workers(
    rig: Rig, tmp_path: Path
) -> None:
    (tmp_path / "parsync.toml").write_text(RULES)
    env = {
        "CELERY_LOADER": "parsync_redis.loader:Loader",
        "PARSYNC_CONFIG": str(tmp_path / "parsync.toml"),
        "PARSYNC_CLUSTER": CLUSTER,
        "PARSYNC_URL": rig.url.replace("redis://", "valkey://"),
        "PLAIN_BROKER": "memory://",
        "PLAIN_BACKEND": rig.broker,
        "PYTHONPATH": str(REPO),
    }
    node = {
        "PARSYNC_NODE": "1",
        "PARSYNC_NODE_NAME": "loaded",
        "PARSYNC_NODE_SLOTS": "2",
        "PARSYNC_NODE_ONLY": "1",
        "PARSYNC_NODE_LABELS": "kind=loaded",
        "PARSYNC_NODE_RESOURCES": "mem=1GiB",
        "PARSYNC_NODE_SCORE": "3.5",
        "PARSYNC_NODE_WITH_SCHEDULER": "1",
        "PARSYNC_PARTITIONS": "2",
        "PARSYNC_LEASE_S": "30",
        "PARSYNC_GAP_S": "0.1",
    }
    words = [f"{name}={value}" for name, value in {**env, **node}.items()]
    celery = [sys.executable, "-m", "celery", "-A", "tests.kit.apps.plain:app"]
    rig.stack.start(
        "loaded",
        ["env", *words, *celery, "worker", "-P", "threads", "-l", "info", "-n", "loaded@%h"],
    )
    rig.until_up("loaded")
    seen = rig.node("loaded")
    assert (seen.slots, seen.score, seen.resources, seen.labels["kind"]) == (
        2,
        3.5,
        {"mem": 1 << 30},
        "loaded",
    )
    client = subprocess.run(
        [sys.executable, "-m", "tests.kit.apps.plain"],
        env={**os.environ, **env},
        cwd=REPO,
        text=True,
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    found = ast.literal_eval(client.stdout)
    assert (found["a"], found["parsync"]["node"]) == (7, "loaded")
    assert found["parsync"]["options"]["slots"] == 2
    plain = [f"{name}={value}" for name, value in env.items()]
    rig.stack.start("plain", ["env", *plain, *celery, "worker", "-P", "solo", "-n", "plain@%h"])
    said = (
        "this worker is no node: tasks of its app that parsync places (untouched.train) run on "
        "nodes only"
    )
    rig.until(lambda: said in rig.lines("plain"), "a worker that is no node says so")
    assert "PARSYNC_NODE=1 in its environment" in rig.lines("plain")
    rig.stack.terminate("plain")
    assert rig.stack.terminate("loaded") == 0
    ended = rig.lines("loaded")
    at = ended.index("node loaded has left")
    scheduler = re.search(r"scheduler \S+ has left", ended)
    assert scheduler, ended
    assert at < scheduler.start(), "the scheduler beside it ends after it"
