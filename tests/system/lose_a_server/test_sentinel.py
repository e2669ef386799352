"""The primary dies and its replica takes over. Writes that it lacks are lost and reported. Row F16 of docs/failure-modes.md."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.errors import AccessDenied, ServerUnreachable
from parsync_redis.store import Store
from parsync_redis.store.repair.losses import read_losses
from parsync_redis.store.server import connection
from tests.kit import REPO
from tests.kit.async_check import check_async
from tests.kit.oracle.audit import audit
from tests.kit.sentinels import SERVICE, Watched
from tests.kit.servers import server_programs
from tests.kit.small_cluster import LEASE_S, SmallCluster
from tests.kit.waiting import until

pytestmark = pytest.mark.serial
FIRST, *_, LAST = [*server_programs().values()] * 2
PROJ = f"""
import os, time
from celery import Celery
from parsync_redis import Parsync

app = Celery("proj", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
options = {{"master_name": "{SERVICE}", "sentinel_kwargs": {{"password": "s"}}}}
app.conf.broker_transport_options = app.conf.result_backend_transport_options = options
app.conf.result_backend_always_retry = True  # else a result that cannot be stored at once fails its task
Parsync(app)


@app.task(name="proj.nap", parsync={{}})
def nap(seconds):
    time.sleep(seconds)
"""


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    watched = Watched(request.param, pw="p w/@", spw="s")
    yield watched
    watched.stop()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no Sentinel be silent on a machine that stands still for a second."""
    monkeypatch.setattr(connection, "SENTINEL_ASK_S", 30.0)


def a_wrong_password_or_service_is_one_clear_error(watched: Watched) -> None:
    host = f"127.0.0.1:{watched.ports[0]}"
    for url, error, says in (
        (
            f"sentinel://:no@{host}/0?service={SERVICE}&sentinel_password=s",
            AccessDenied,
            "refuses the login",
        ),
        (
            f"sentinel://{host}/0?service={SERVICE}&sentinel_password=no",
            AccessDenied,
            "the Sentinels of mymaster refuse",
        ),
        (
            f"sentinel://{host}/0?service=other&sentinel_password=s",
            ServerUnreachable,
            "Sentinels of other know no primary",
        ),
    ):
        with pytest.raises(error, match=says) as raised:
            Store.from_url(url, "c").check_server()
        assert "no@" not in str(raised.value)
        with pytest.raises(error, match=says):
            check_async(url)
    check_async(watched.url)


@pytest.mark.parametrize("watched", [FIRST], indirect=True)
def test_after_a_failover_schedulers_go_on_nodes_stay_up_and_lost_writes_are_reported(
    watched: Watched,
) -> None:
    a_wrong_password_or_service_is_one_clear_error(watched)
    small_cluster = SmallCluster(watched.url, "watched")
    try:
        small_cluster.node("n1", 2)
        kept = [f"kept{n}" for n in range(6)]
        small_cluster.submit(*kept)
        small_cluster.wait(lambda: small_cluster.done(kept[:2]), "they run", working=True)
        until_s = time.monotonic() + LEASE_S / 2
        small_cluster.wait(lambda: time.monotonic() > until_s, "schedulers have renewed")
        watched.cut_replication()
        lost = [f"lost{n}" for n in range(20)]
        assert set(small_cluster.submit(*lost)) == {"submitted"}
        until_s = time.monotonic() + LEASE_S / 2
        small_cluster.wait(lambda: time.monotonic() > until_s, "schedulers have seen them")
        inc = small_cluster.incs["n1"]
        watched.kill_primary()
        small_cluster.wait(lambda: read_losses(small_cluster.store), "the loss is noticed")
        assert small_cluster.incs["n1"] == inc, "nobody was given up"
        texts = [loss.text for loss in read_losses(small_cluster.store)]
        assert any("submitted 26 -> 6" in text for text in texts), texts
        assert any("a replica took over cluster,q0,p0" in text for text in texts), texts
        assert set(small_cluster.store.states(lost)) == {""}
        small_cluster.wait(
            lambda: small_cluster.done(kept), "what the replica had goes on", working=True
        )
        assert set(small_cluster.submit(*lost)) == {"submitted"}, (
            "to submit the same ids again is safe"
        )
        small_cluster.wait(
            lambda: small_cluster.done(lost), "and so does what comes anew", working=True
        )
    finally:
        small_cluster.close()
    assert not audit(small_cluster.store)


@pytest.mark.parametrize("watched", [LAST], indirect=True)
def test_a_worker_whose_broker_is_behind_sentinels_is_a_node_and_goes_on(
    watched: Watched, tmp_path: Path
) -> None:
    (tmp_path / "proj.py").write_text(PROJ)
    env = {"BROKER": watched.broker, "PYTHONPATH": f"{tmp_path}:{REPO}"}
    with (
        LocalStack("watched", watched.url, print, cwd=tmp_path, env=env) as stack,
        ParsyncClient.from_url(watched.url, "watched") as client,
    ):
        stack.scheduler(1, gap_s=0.1)
        stack.worker("proj:app", "n1", slots=2)
        until(lambda: [node.state for node in client.nodes()] == ["up"], "the worker is a node")
        long, *others = client.submit_many([("proj.nap", [6]), *[("proj.nap", [0.05])] * 5])
        client.wait(others[:1], timeout=180)
        watched.kill_primary()
        others += client.submit_many([("proj.nap", [0.05])] * 5)
        done = client.wait([long, *others], timeout=180)
        assert {task.state for task in done.values()} == {"succeeded"}
        assert done[long].starts == 1, "what ran went on"
        assert client.nodes()[0].inc == 1, "nobody was given up"
