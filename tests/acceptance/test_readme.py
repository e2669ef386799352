"""The Python examples of the README run, one after another, on a cluster of real processes."""

import os
import subprocess
import sys

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from tests.documents import ROOT, Document

ADDRESS = "redis://127.0.0.1:6379/0"


@pytest.mark.serial
def test_the_examples_run(tmp_path):
    app, *uses = Document("README.md").blocks("python")
    assert [block.heading for block in (app, *uses)] == ["With your own app"] * 2 + ["Without the app"] * 2
    with LocalStack(cwd=tmp_path, sink=lambda name, line: print(name, line), env={"PYTHONPATH": str(ROOT)}) as stack:
        url = stack.server()
        (tmp_path / "proj.py").write_text(app.text.replace(ADDRESS, url))
        stack.scheduler()
        stack.worker("proj", "n1", 2, 9.5, {"zone": "a"}, {"mem": "4GiB"})
        printed = [run_when_a_node_is_up(use.text.replace(ADDRESS, url), tmp_path, url) for use in uses]
    assert printed[0] == "tile 7 is drawn\ntile 8 is drawn SUCCESS\n"
    assert printed[1].startswith("succeeded n1 ")
    assert printed[2] == "{'succeeded'}\n"


def run_when_a_node_is_up(code, folder, url):
    """Return the output of an example."""
    with ParsyncClient.from_url(url) as client:
        client.wait([client.submit("proj.render", [0])], 30)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
