"""The report of an outcome: no slot is free before its task's outcome is known, whatever the server
forgets.
"""

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.store import Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.runs import Run, Runs
from tests.kit.driver import Driver


@pytest.mark.one_server(0)
def test_a_server_that_lost_the_script_of_the_outcome_only_frees_no_slot(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Driver(store)
    runs = Runs()
    drive.node()
    drive.submit("a")
    run = Run(drive.held("a", drive.take()["a"]), outcome="succeeded")
    assert drive.start(run.place) == "ok"
    assert runs.enter(run)
    reporter = Reporter(store, runs)
    store.client.script_flush()
    store.client.script_load(
        next(script.text for script in ALL_SCRIPTS if script.verb == "release")
    )

    def gone(*_: object) -> None:
        raise ServerUnreachable("it went away before the scripts were there again")

    with monkeypatch.context() as patch:
        patch.setattr(store, "load_scripts", gone)
        assert isinstance(reporter._report(store, [run]), ServerUnreachable)
    assert drive.state("a") == "running"
    assert drive.hash("slots"), "the slot of a running task was freed"
    assert reporter._report(store, [run]) is None
    assert drive.state("a") == "succeeded"
    assert not drive.hash("slots")
    assert len(runs) == 0
