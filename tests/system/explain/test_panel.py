"""A node adds to Celery's inspect: tasks placed at it that have not begun, and tasks that are not
due yet.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from parsync_redis.model.task import Submission
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.wire.message import make_message
from parsync_redis.worker.celery.inspect_answers import reserved, scheduled
from tests.kit.small_cluster import SmallCluster


@pytest.mark.one_server(-1)
def test_the_panel_lists_tasks_that_are_placed_here_and_tasks_that_wait_for_their_time(
    server: EmbeddedServer,
) -> None:
    small_cluster = SmallCluster(server.url, "panel", schedulers=1)
    try:
        small_cluster.node("n1", 2)
        tasks = [
            Submission(id, "job", make_message("job", [id], {"k": 1}, id), delay_ms=delay_ms)
            for id, delay_ms in (("now", None), ("then", 600_000), ("later", 900_000))
        ]
        other = Submission(
            "other", "nobody", make_message("nobody", [], None, "other"), delay_ms=600_000
        )
        small_cluster.store.run(small_cluster.store.commands.submit([*tasks, other]))
        many = [
            Submission(
                f"m{n:03}%20x",
                "many",
                make_message("many", [n], {}, f"m{n:03} x"),
                delay_ms=10**6 + n,
            )
            for n in range(110)
        ]
        small_cluster.store.run(small_cluster.store.commands.submit(many))
        for id, message in (
            ("m000%20x", b"{}"),
            ("m001%20x", b'{"body": 1, "headers": 2, "properties": 3}'),
        ):
            small_cluster.store.client.hset(small_cluster.store.keys.queue("messages"), id, message)
        app = Celery("panel", set_as_current=False)

        @app.task(name="job", shared=False)
        def job(id: str, k: int) -> None: ...

        agent: Any = SimpleNamespace(
            store=small_cluster.store, node=SimpleNamespace(name="n1", partition=0, inc=1)
        )
        (placed,) = small_cluster.wait(lambda: list(reserved(agent, app, "w@h")), "one is placed")
        assert (placed["id"], placed["args"], placed["kwargs"], placed["hostname"]) == (
            "now",
            ["now"],
            {"k": 1},
            "w@h",
        )
        small_cluster.wait(small_cluster.start, "it begins")
        assert list(reserved(agent, app, "w@h")) == []
        found: Any = list(scheduled(agent, app, "w@h"))
        assert [each["request"]["id"] for each in found] == ["then", "later"]
        assert found[0]["eta"] < found[1]["eta"]

        @app.task(name="many", shared=False)
        def many_more(n: int) -> None: ...

        again: Any = scheduled(agent, app, "w@h")
        found = [each["request"]["id"] for each in again]
        assert found[:3] == ["then", "later", "m002 x"], (
            "two are damaged; an id is shown as it was given"
        )
        assert len(found) <= 100
    finally:
        small_cluster.close()
