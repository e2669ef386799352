"""A request: the outcome of its run, its class; the delay of an ETA, and the name of a signal."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from billiard.exceptions import Terminated, WorkerLostError
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.worker.request import Request

from parsync_redis import InvalidInput
from parsync_redis.integration.app import signal_name
from parsync_redis.integration.publish import delay_of
from parsync_redis.worker.request import outcome_of, request_class


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
