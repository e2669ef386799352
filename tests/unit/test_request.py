"""A request: the outcome of its run, its class; the delay of an ETA, and the name of a signal."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from billiard.exceptions import Terminated, WorkerLostError
from celery import Celery
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.worker.request import Request

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.app import signal_name
from parsync_redis.integration.publish import delay_of
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.message import make_message
from parsync_redis.worker.agent import Agent
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.isolation.tie import RunIsolation
from parsync_redis.worker.node import NodeSpec
from parsync_redis.worker.received import Delivered, as_message
from parsync_redis.worker.request import outcome_of, request_class
from parsync_redis.worker.runs import Run


@pytest.mark.parametrize(
    ("error", "revoked", "outcome"),
    [
        (ValueError(), False, "failed"),
        (ValueError(), True, "cancelled"),
        (Terminated(15), False, "cancelled"),
        (Retry(), False, "again"),
        (MaxRetriesExceededError(), False, "failed"),
        (Reject("no", requeue=True), False, "again"),
        (Reject("no"), False, "failed"),
        (Ignore(), False, "succeeded"),
        (WorkerLostError(), False, "succeeded"),  # only asked where the success was stored before
    ],
)
def test_an_exception_is_an_outcome_in_the_words_of_finish(error: Any, revoked: bool, outcome: str) -> None:
    assert outcome_of(error, revoked) == outcome


def test_a_class_of_requests_is_derived_once_and_not_from_itself() -> None:
    derived = request_class(Request)
    assert request_class(Request) is derived
    assert request_class(derived) is derived


def test_a_delay_is_the_milliseconds_until_an_eta_and_none_if_it_has_passed() -> None:
    now = datetime.now(UTC)
    for eta in (now + timedelta(seconds=10), (now + timedelta(seconds=10)).isoformat()):
        delay_ms = delay_of(eta)
        assert delay_ms is not None
        assert 9_000 < delay_ms <= 10_000
    unzoned = delay_of((now + timedelta(seconds=10)).replace(tzinfo=None))
    assert unzoned is not None
    assert unzoned > 9_000
    assert delay_of(now - timedelta(seconds=1)) is None
    assert delay_of(None) is None
    with pytest.raises(InvalidInput, match="ISO 8601"):
        delay_of("tomorrow")


def test_a_signal_is_written_down_by_its_name() -> None:
    assert [signal_name(signal) for signal in ("SIGTERM", "KILL", 9)] == ["SIGTERM", "SIGKILL", "SIGKILL"]
    assert signal_name(None) == "SIGTERM", "what AsyncResult.revoke passes if its caller names none"
    for signal in ("SIGWHAT", "sigterm", 999):
        with pytest.raises(InvalidInput, match="signal="):
            signal_name(signal)


class Guards(Isolation):
    """Isolation whose guard is another with each renewal."""

    guard = 0

    def renewed(self, sent_s: float, lease_s: float) -> None:
        self.guard += 1

    def of(self, slots: Collection[int]) -> RunIsolation:
        return RunIsolation("locks", tuple(slots), f"guard {self.guard}", True)


def test_a_run_that_waited_for_a_process_is_tied_to_the_guard_that_lives_when_it_begins() -> None:
    app, place = Celery("unit", broker="memory://", set_as_current=False), Place("t", "1@1", 0, "n1", (3,), 1, 0)

    @app.task(name="proj.add", shared=False)
    def add() -> None: ...

    parsync = Parsync(app, url="redis://127.0.0.1:1/0", cluster="unit")
    settings, spec, isolation = parsync.settings(), NodeSpec("n1", Resources.of(4), 1.0), Guards()
    store, no_worker = Store.from_url(settings.url, settings.cluster), cast(Any, None)
    parsync.agent = Agent(app, settings, store, spec, no_worker, isolation)
    assert parsync.agent.node.runs.enter(Run(place))
    payload = open_envelope(make_message("proj.add", (), {}, "t"))
    payload["headers"]["parsync"] = {"id": "t", "attempt": "1@1", "slot": 3}
    request: Any = request_class(Request)(as_message(app, payload, Delivered), app=app, task=app.tasks["proj.add"])
    isolation.renewed(0.0, 1.0)
    handed: list[RunIsolation] = []

    class Pool:
        def apply_async(self, target: Any, args: Any, **options: Any) -> "Pool":
            handed.append(args[0])
            return self

    request.execute_using_pool(Pool())
    assert handed == [RunIsolation("locks", (3,), "guard 1", True)]
