"""A server takes no writes: whoever is asked why nothing is placed says so, with the remedy, and
calls nobody dead.
"""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parsync_redis import ParsyncClient
from parsync_redis.cli.app import app
from parsync_redis.inspect.checkup import check_up
from parsync_redis.inspect.outlook import find_missing
from parsync_redis.model.explanation import Outlook
from parsync_redis.security.acl import user_line
from parsync_redis.security.acl_tables import Role
from parsync_redis.serve.health import judge_readiness
from parsync_redis.serve.survey import read_survey
from parsync_redis.serve.surveyor import LatestSurvey
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.schedulers import STATS_KEPT_MS
from parsync_redis.store.reads.views import ViewReader
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver
from tests.kit.refusals import (
    Refusal,
    admin,
    failed_snapshot,
    full_disk,
    full_memory,
    missing_replicas,
    refusing_server,
    replica,
)
from tests.kit.servers import server_programs
from tests.kit.waiting import until

CASES: dict[str, tuple[Refusal, str, str]] = {
    "few replicas": (
        missing_replicas,
        "it has fewer replicas in step",
        "CONFIG SET min-replicas-to-write 0",
    ),
    "a replica": (replica, "it is a read-only replica of 127.0.0.1:1", "REPLICAOF NO ONE"),
    "full memory": (full_memory, "its memory is full", "CONFIG SET maxmemory 0"),
    "full disk": (full_disk, "its disk fails", ""),
    "failed snapshot": (
        failed_snapshot,
        "its disk fails",
        "CONFIG SET stop-writes-on-bgsave-error no",
    ),
}
"""Ways to make a server refuse, what everybody then says, and the command that ends the refusal ('' if no command does)."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    """Return one of the cases."""
    return str(request.param)


@pytest.fixture(params=list(server_programs().values()), ids=list(server_programs()))
def own(request: pytest.FixtureRequest, case: str, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """Yield a server that can be brought to refuse writes.

    Only a server without AOF goes by its snapshots.
    """
    if case == "failed snapshot":
        (tmp_path / "data").mkdir()
        server = EmbeddedServer(request.param, options={"dir": tmp_path / "data"})
    else:
        server = refusing_server(request.param, tmp_path)
    with server:
        yield server


@pytest.fixture
def client(own: EmbeddedServer) -> Iterator[ParsyncClient]:
    """Yield a client of a cluster with room on a node; its scheduler has not renewed for a minute.
    A task waits.
    """
    store = Store.from_url(own.url, "told")
    join_cluster(store, Settings(url=own.url, cluster="told", partitions=1), create=True)
    drive = Driver(store)
    drive.node("n1", 2)
    drive.run(drive.commands.renew_scheduler("s1"))
    drive.submit("a")
    admin_client: Any = store.client
    admin_client.pexpire(store.keys.stats("s1"), STATS_KEPT_MS - 60_000)
    with ParsyncClient.from_url(own.url, "told") as client:
        yield client
    store.client.close()


def sayings(client: ParsyncClient) -> dict[str, str]:
    """Return what each place says that concludes from the silence of schedulers."""
    store = client.store
    ready, answer = judge_readiness(
        LatestSurvey(read_survey(store, ViewReader()), time.monotonic(), 0.1, "")
    )
    checks = {check.name: check for check in check_up(store, client.settings)}
    assert checks["writes"].level == "fail"
    assert not ready
    flags = ["--url", client.settings.url, "--cluster", "told"]
    table = CliRunner().invoke(app, ["schedulers", *flags])
    return {
        "plan": client.plan("work").why,
        "status": client.with_reasons([client.status("a")])[0].why,
        "the warning of a submit": find_missing(store),
        "doctor": " ".join(
            f"{check.text}: {check.repair}" for check in checks.values() if check.level == "fail"
        ),
        "readyz": " ".join(f"{check['text']}: {check['repair']}" for check in answer["reasons"]),
        "parsync schedulers": table.output,
    }


def test_all_say_that_the_server_takes_no_writes_and_name_a_remedy_that_helps(
    case: str, own: EmbeddedServer, client: ParsyncClient
) -> None:
    refusal, why, command = CASES[case]
    with ExitStack() as held:
        held.enter_context(refusal(own))
        for place, text in sayings(client).items():
            assert f"takes no writes: {why}" in text, place
            assert not re.search("no scheduler|none is alive|parsync scheduler", text), place
        plan = client.plan("work")
        assert plan.outlook is Outlook.WAITS
        remedy = command.replace("maxmemory 0", "maxmemory BYTES") or "room on the disk"
        assert remedy in plan.remedies[0]
        if command:
            with admin(own) as orders:
                orders.execute_command(*command.split())
                assert client.store.why_no_writes() == {}, "the remedy is enough"
                assert "no scheduler of cluster 'told'" in client.plan("work").why
                if case == "failed snapshot":
                    orders.config_set("stop-writes-on-bgsave-error", "yes")
    until(lambda: client.store.why_no_writes() == {}, "it takes writes again")
    missing = client.plan("work")
    assert missing.remedies[0] == "parsync scheduler --cluster told"
    assert "no scheduler of cluster 'told'" in missing.why


def test_a_login_that_may_only_read_is_told_as_well(
    case: str, own: EmbeddedServer, client: ParsyncClient
) -> None:
    with admin(own) as orders:
        line = user_line(
            Role.VIEWER, "told", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        )
        orders.execute_command("ACL", "SETUSER", *line.split(), ">secret")
    place = own.url.removeprefix("redis://")
    with (
        CASES[case][0](own),
        ParsyncClient.from_url(f"redis://told-viewer:secret@{place}", "told") as viewer,
    ):
        assert f"takes no writes: {CASES[case][1]}" in viewer.plan("work").why
