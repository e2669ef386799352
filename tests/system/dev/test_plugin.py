"""The pytest plug-in, in runs of pytest of a project that uses it."""

import re

import pytest
from celery import Celery

from parsync_redis import InvalidInput, Parsync
from parsync_redis.testing import TestCluster
from parsync_redis.testing.nodes import NODE_KEYS, worker_options
from tests.kit.documents import Document, tables

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.serial

README = Document("README.md")
PAGE = Document("docs/testing.md")
(INI,) = (block.text for block in PAGE.blocks("ini"))
FILES = {re.findall(r"# (\w+)\.py", block.text)[0]: block.text for block in PAGE.blocks("python")}
"""The files that the page shows."""

PROJ = (
    README.blocks("python")[0].text
    + """
import threading

begun = threading.Event()


@app.task(parsync={})
def total(tiles):
    return len(tiles)


@app.task(parsync={})
def long():
    begun.set()
    threading.Event().wait(1)
"""
)

CONFTEST = (
    FILES.pop("conftest")
    + """
import os, threading
import proj
from celery import Task

plain = Task.apply


def pytest_unconfigure():
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("parsync")]
    settings = proj.app.parsync.settings()
    print("left:", settings.url, settings.cluster, os.environ.get("PARSYNC_URL"), left, Task.apply is plain)
"""
)

TESTS = """
import os
import proj, pytest
from celery import chain, chord, group
from celery.result import AsyncResult
from parsync_redis import Infeasible, ParsyncError
from parsync_redis.testing import Eager, cluster as module

NODE = {"slots": 4, "resources": {"mem": "4GiB"}, "labels": {"zone": ["a", "b"]}}
HOLDS = {"resources": {"mem": "4GiB"}, "labels": {"zone": "a"}}


def test_a_task_is_placed_on_the_node(parsync_cluster):
    result = proj.render.delay(7)
    assert result.get(timeout=120) == "tile 7 is drawn"
    assert parsync_cluster.client.status(result.id).node == "n1"
    (node,) = parsync_cluster.client.nodes()
    assert (node.slots, node.score, node.labels) == (4, 2.0, {"zone": "a,b"})


def test_plain_tasks_and_canvases_run_too(parsync_cluster):
    assert proj.ping.delay().get(timeout=120) == "pong"
    assert chord(proj.render.s(n) for n in range(3))(proj.total.s()).get(timeout=120) == 3


def test_programs_find_the_cluster_in_the_environment(parsync_cluster):
    assert os.environ["PARSYNC_URL"] == parsync_cluster.url == proj.app.parsync.settings().url


def test_leaves_tasks_behind(parsync_cluster):
    proj.render.apply_async((1,), task_id="waits", countdown=3600)
    assert proj.render.apply_async((1,), task_id="ran").get(timeout=120)
    assert parsync_cluster.client.status("waits").state == "waiting"


def test_finds_none(parsync_cluster):
    assert {task.state for task in parsync_cluster.client.statuses(["waits", "ran"])} == {"gone"}
    assert AsyncResult("ran", app=proj.app).state == "PENDING"


BAD = [
    {"parsync": {"slots": -1}},
    {"parsync": {"slot": 1}},
    {"parsync": {"slots": 5}},
    {"parsync": {"resources": {"mem": "8GiB"}}},
    {"parsync": {"resources": {"gpu": 1}}},
    {"parsync": {"require": {"zone": "c"}}},
    {"parsync": {"require": {"zone": {">=": "x"}}}},
    {"parsync": {"priority": 10}},
    {"parsync": 7},
    {"parsync": {"slots": 1}, "priority": "high"},
    {"headers": {"parsync": {"options": {"slots": 9}}}},
    {"headers": 7},
    {"task_id": "x" * 300},
]


@pytest.mark.parametrize("options", BAD)
def test_an_eager_call_is_refused_as_a_submit_is(parsync_cluster, options):
    with pytest.raises(ParsyncError) as submits:
        proj.render.apply_async((1,), **options)
    with Eager(proj.app) as eager:
        eager(nodes=[NODE])
        with pytest.raises(type(submits.value)) as calls:
            proj.render.apply_async((1,), **options)
    assert str(calls.value) == str(submits.value)


def test_an_eager_call_runs_here(parsync_eager):
    assert proj.render.delay(3).get() == "tile 3 is drawn"
    assert chain(proj.render.s(1), proj.total.s())().get() == len('tile 1 is drawn')
    assert group(proj.ping.s(), proj.render.s(1))().get() == ["pong", "tile 1 is drawn"]
    assert proj.render.apply_async((1,), countdown=60, expires=90, parsync={"slots": 100}).get() == "tile 1 is drawn"


def test_nodes_may_be_declared(parsync_eager):
    parsync_eager(nodes=[{"slots": 9, "taints": ["spot"], **HOLDS}])
    assert proj.render.apply_async((1,), parsync={"tolerate": ["spot"]}).get()
    with pytest.raises(Infeasible, match="spot"):
        proj.render.delay(3)
    parsync_eager(nodes=[{"slots": 1}, {"slots": 2, **HOLDS}])
    assert proj.render.delay(3).get() == "tile 3 is drawn"
    assert proj.render.apply_async((1,), parsync={"slots": 3, "wait_for_capacity": True}).get() == "tile 1 is drawn"
    assert proj.render.apply_async((1,), parsync=False).get() == "tile 1 is drawn"
    with pytest.raises(Infeasible, match="the largest node has 2"):
        proj.render.apply_async((1,), parsync={"slots": 3})
    with pytest.raises(Infeasible):
        group(proj.ping.s(), proj.render.s(1).set(parsync={"require": {"zone": "b"}}))()
    with pytest.raises(ParsyncError, match="unknown word 'slot' of a node: known are slots"):
        parsync_eager(nodes=[{"slot": 1}])


def test_eager_ends_with_the_test():
    assert not proj.app.conf.task_always_eager


def test_leaves_a_task_that_runs(monkeypatch, parsync_cluster):
    monkeypatch.setattr(module, "ENDS_S", 0.0)
    proj.long.apply_async()
    assert proj.begun.wait(120)
"""


def project(pytester, ini=INI, conftest=CONFTEST, **tests):
    pytester.makeini(ini)
    pytester.makepyfile(proj=PROJ, conftest=conftest, **tests)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist")


def test_a_project_tests_its_tasks_on_a_cluster_and_eagerly(pytester):
    done = project(pytester, **FILES, test_the_rest=TESTS)
    done.assert_outcomes(passed=28, errors=1)
    done.stdout.fnmatch_lines(
        [
            "*AssertionError: after the test tasks still run, and nobody can end them: 1 of 1 "
            "tasks are not final*",
            "left: redis://127.0.0.1:6379/0 parsync None [[][]] True",
        ]
    )


NO_APP = """
def test_placed(parsync_cluster): ...
def test_eager(parsync_eager): ...
"""


def test_a_user_who_names_no_app_is_told_how(pytester):
    done = project(pytester, "[pytest]\n", "", test_it=NO_APP)
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(
        ["*set the ini option parsync_app = proj.celery:app, or override the fixture*"]
    )


def test_a_node_that_is_none_and_an_app_without_parsync_are_refused(pytester):
    conftest = (
        "import pytest\nfrom celery import Celery\n"
        "@pytest.fixture(scope='session')\ndef parsync_node(): return {'slots': 0}\n"
        "@pytest.fixture(scope='module')\ndef plain(): return Celery('plain')\n"
    )
    tests = (
        NO_APP + "from parsync_redis.testing import Eager\ndef test_plain(plain): Eager(plain)\n"
    )
    done = project(pytester, conftest=conftest, test_it=tests)
    done.assert_outcomes(errors=1, passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*parsync_cluster: slots=0 is not valid*",
            "*the app plain has no Parsync: call Parsync(app)*",
        ]
    )


def test_a_node_has_the_flags_of_a_worker():
    node = {
        "slots": 2,
        "score": 3,
        "labels": {"zone": ["a", "b"], "disk": "ssd"},
        "resources": {"mem": "4GiB"},
        "taints": ["spot"],
        "queues": ["gpu"],
    }
    assert worker_options(node) == {
        "parsync_slots": 2,
        "parsync_score": 3,
        "parsync_label": ("zone=a", "zone=b", "disk=ssd"),
        "parsync_resource": ("mem=4GiB",),
        "parsync_taint": ("spot",),
        "queues": ["gpu"],
    }
    assert worker_options({}) == {"parsync_slots": 8}


def test_a_password_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "password").write_text("secret")
    monkeypatch.setenv("PARSYNC_PASSWORD_FILE", str(tmp_path / "password"))
    app = Celery("proj", set_as_current=False)
    Parsync(app)
    with pytest.raises(InvalidInput, match="a password_file is set"):
        TestCluster(app)


def test_an_app_with_tls_servers_is_tested_on_a_server_without_tls():
    tls = {"ssl_cert_reqs": "required", "ssl_ca_certs": "/none.pem"}
    app = Celery("secure", broker="rediss://h/0", backend="rediss://h/1", set_as_current=False)
    app.conf.update(broker_use_ssl=tls, redis_backend_use_ssl=tls)
    Parsync(app)
    tasks = [
        app.task(name=f"secure.{name}", **options)(nothing) for name, options in OPTIONS.items()
    ]
    with TestCluster(app):
        assert [task.delay().get(timeout=180) for task in tasks] == [None, None]
    assert (app.conf.broker_use_ssl, app.conf.redis_backend_use_ssl) == (tls, tls)
    assert app.parsync.settings().url.startswith("rediss://h:6379/0?ssl_cert_reqs=required&")


OPTIONS: dict[str, dict[str, object]] = {"plain": {}, "placed": {"parsync": {}}}


def nothing():
    """Do nothing."""


def test_the_page_names_each_fixture_and_each_word_of_a_node():
    rows = {row[0].strip("`") for row in tables(PAGE.text)}
    assert rows >= {*NODE_KEYS, "parsync_eager", "parsync_cluster"}
