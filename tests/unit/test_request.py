"""A request: the outcome of its run, its class; the delay of an ETA, and the name of a signal."""

import pickle
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import Terminated, WorkerLostError
from celery import Celery, signals
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry, SoftTimeLimitExceeded
from celery.worker.request import Request
from redis.exceptions import ReadOnlyError

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.app import signal_name
from parsync_redis.integration.publish import delay_of
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.message import make_message
from parsync_redis.worker.celery.delivered_message import Delivered, as_message
from parsync_redis.worker.celery.isolated_pool import run_isolated
from parsync_redis.worker.celery.request import outcome_of, request_class, watch
from parsync_redis.worker.celery.storing import is_of_backend, watch_results
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.isolation.tie import RunIsolation
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.reporter import outcomes
from parsync_redis.worker.node.runs import Run


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
def test_an_exception_is_an_outcome_in_the_words_of_finish(
    error: Any, revoked: bool, outcome: str
) -> None:
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
    assert [signal_name(signal) for signal in ("SIGTERM", "KILL", 9)] == [
        "SIGTERM",
        "SIGKILL",
        "SIGKILL",
    ]
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


def placed_request(
    isolation: Isolation | None = None,
    acks_late: bool = False,
    backend: str = "disabled://",
    body: Callable[[], object] = lambda: None,
    placed: bool = True,
) -> Any:
    """Return the request of a placed task whose run is in the node's table, or of a plain task."""
    app = Celery("unit", broker="memory://", backend=backend, set_as_current=False)
    place = Place("t", "1@1", 0, "n1", (3,), 1, 0)

    @app.task(name="proj.add", shared=False, acks_late=acks_late)
    def add() -> object:
        return body()

    parsync = Parsync(app, url="redis://127.0.0.1:1/0", cluster="unit")
    settings = parsync.settings()
    spec = NodeSpec("n1", Resources.of(4), 1.0)
    store = Store.from_url(settings.url, settings.cluster)
    no_worker = cast(Any, None)
    parsync.agent = Agent(settings, store, spec, no_worker, isolation)
    assert parsync.agent.node.runs.enter(Run(place))
    payload = open_envelope(make_message("proj.add", (), {}, "t"))
    if placed:
        payload["headers"]["parsync"] = {"id": "t", "attempt": "1@1", "slot": 3}
    message = as_message(app, payload, Delivered)
    nothing = {"on_ack": lambda *_: None, "on_reject": lambda *_: None}
    return request_class(Request)(message, app=app, task=app.tasks["proj.add"], **nothing)


def run_of(request: Any) -> Run:
    """Return the run of the one placed request."""
    run = request.app.parsync.agent.node.runs.get(("t", "1@1", 3))
    assert run is not None
    return run


class NoBackend:
    """A result backend that takes nothing."""

    def store_result(self, *args: object, **options: object) -> None:
        raise ReadOnlyError("You can't write against a read only replica.")

    def as_uri(self) -> str:
        return "redis://h/0"


def take_backend_away(request: Any) -> None:
    """Have the request's app store no result."""
    backend = request.app.backend
    vars(backend).update(store_result=NoBackend().store_result, as_uri=NoBackend().as_uri)
    request.app._local.backend = request.app._backend_cache = backend
    watch_results(request.app)


def test_a_run_that_waited_for_a_process_is_tied_to_the_guard_that_lives_when_it_begins() -> None:
    isolation = Guards()
    request = placed_request(isolation)
    isolation.renewed(0.0, 1.0)
    handed: list[RunIsolation] = []

    class Pool:
        def apply_async(self, target: Any, args: Any, **options: Any) -> "Pool":
            handed.append(args[0])
            return self

    request.execute_using_pool(Pool())
    assert handed == [RunIsolation("locks", (3,), "guard 1", True)]


def test_a_placed_request_has_no_message_to_wait_for_while_celery_deals_with_a_lost_broker() -> (
    None
):
    request = placed_request(acks_late=True)
    node = request.app.parsync.agent.node
    assert not request.acknowledged, "a cold shutdown ends it"
    node.broker_lost = True
    assert request.acknowledged, "the loss of the broker does not"
    node.broker_lost = False
    request.reject(requeue=True)
    assert request.acknowledged
    assert request._outcome(ValueError()) == "again", "it goes back, as its message would"


def failure(error: BaseException) -> ExceptionInfo:
    """Return what a pool reports of a run that raised an error."""
    try:
        raise error
    except BaseException:
        return ExceptionInfo()


def test_a_failure_that_is_not_stored_goes_to_the_outbox_with_the_reason() -> None:
    request = placed_request()
    take_backend_away(request)
    request.on_failure(failure(ValueError("boom")))
    run = run_of(request)
    assert (run.outcome, run.unstored) == ("failed", True)
    assert run.flaw.startswith("its result could not be stored: ReadOnlyError You can't write")
    (call,) = outcomes(request.app.parsync.agent.store.commands, [run])
    assert f"unstored failed {run.flaw}" in call.args


class Refusing:
    """Has a method of a result backend refuse the calls from `begin` on, so many of them; counts
    all calls.
    """

    def __init__(self, backend: Any, method: str, times: float, begin: int = 1) -> None:
        self.states: list[str] = []
        self._call = getattr(backend, method)
        self._refused = range(begin, int(min(begin + times, 10**6)))
        vars(backend)[method] = self

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.states.append(args[2] if isinstance(args[2], str) else args[1])
        if len(self.states) in self._refused:
            raise ReadOnlyError("You can't write against a read only replica.")
        return self._call(*args, **options)


def run_here(request: Any, **headers: object) -> None:
    """Run the task as a solo pool does, and give the request what a pool's process says."""
    task = request.app.tasks["proj.add"]
    trace = build_tracer(task.name, task, app=request.app)

    def run() -> tuple[int, object, float]:
        traced = trace("t", (), {}, {**request.request_dict, **headers})
        return 1 if traced.info else 0, traced.retval, traced.runtime or 0.0

    request.on_success(pickle.loads(pickle.dumps(run_isolated(None, {}, run))))


# Celery's words
outside_body = pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")


def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsync_redis.worker.celery.storing.BACKEND_PATIENCE_S", 0.0)


@outside_body
@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("case", ["no JSON", "no JSON in its state", "refused once"])
def test_a_failure_that_celery_has_stored_is_stored_and_announced_once(
    case: str, placed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_patience(monkeypatch)
    bodies: dict[str, Callable[[], object]] = {
        "no JSON": object,
        "no JSON in its state": lambda: request.task.update_state(
            task_id="t", state="HALF", meta=object()
        ),
        "refused once": lambda: 1,
    }
    request = placed_request(backend="cache+memory://", body=bodies[case], placed=placed)
    stores = Refusing(request.app.backend, "store_result", times=1 if case == "refused once" else 0)
    watch_results(request.app)
    failures: list[object] = []

    def count(sender: Any, **options: object) -> None:
        failures.append(sender.name)

    signals.task_failure.connect(count, sender=request.task)
    run_here(request)
    assert stores.states.count("FAILURE") == 1
    assert failures == ["proj.add"]
    assert request.app.AsyncResult("t").state == "FAILURE"
    if placed:
        run = run_of(request)
        assert (run.outcome, run.unstored, run.flaw[:10]) == ("failed", False, "it raised ")


@outside_body
def test_a_result_that_its_own_process_could_not_store_names_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_patience(monkeypatch)
    request = placed_request(backend="cache+memory://")
    stores = Refusing(request.app.backend, "store_result", times=2)
    watch_results(request.app)
    run_here(request)
    assert stores.states == ["SUCCESS", "FAILURE", "FAILURE"], (
        "the worker stores the failure itself"
    )
    run = run_of(request)
    assert (run.outcome, run.unstored) == ("failed", False)
    assert run.flaw.startswith("its result could not be stored: ReadOnlyError")


def test_a_task_that_ends_its_process_has_that_reason_though_its_own_process_stored_nothing() -> (
    None
):
    def leave() -> None:
        raise SystemExit(3)

    request = placed_request(backend="cache+memory://", body=leave)
    watch_results(request.app)
    run_here(request)
    assert (run_of(request).outcome, run_of(request).flaw) == ("failed", "it ended its own process")
    assert request.app.AsyncResult("t").state == "FAILURE"


def test_a_part_of_a_chord_waits_for_a_backend_that_refuses_it_and_stays_a_success() -> None:
    request = placed_request(backend="cache+memory://", body=lambda: 1)
    parts = Refusing(request.app.backend, "on_chord_part_return", times=2)
    parts._call = lambda *args, **options: None
    watch_results(request.app)
    run_here(request, chord={"task": "body"}, group="g")
    assert parts.states == ["SUCCESS"] * 3
    assert request.app.AsyncResult("t").state == "SUCCESS"
    assert run_of(request).outcome == "succeeded"


def test_a_failed_part_of_a_chord_that_the_backend_refuses_goes_to_the_outbox() -> None:
    request = placed_request(backend="cache+memory://")
    request.__dict__["_context"] = Context(id="t", chord={"task": "body"}, group="g")
    Refusing(request.app.backend, "on_chord_part_return", times=1)
    watch_results(request.app)
    request.on_failure(failure(ValueError("boom")))
    assert (run_of(request).outcome, run_of(request).unstored) == ("failed", True)


def test_the_own_backend_of_a_task_is_watched_too() -> None:
    request = placed_request(backend="cache+memory://")
    app = request.app
    for watch_it in (lambda: watch_results(app), lambda: watch(app.tasks["proj.add"])):
        app.tasks["proj.add"].backend = own = app._get_backend()
        Refusing(own, "store_result", times=1)
        own.store_result.of_parsync = False
        watch_it()
        watch_it()
        with pytest.raises(ReadOnlyError) as caught:
            own.store_result("t", 1, "SUCCESS")
        assert is_of_backend(caught.value)


def test_a_revoke_that_is_not_stored_goes_to_the_outbox() -> None:
    request = placed_request()
    take_backend_away(request)
    request._announce_revoked("terminated", True, "15", False)
    request.on_failure(failure(Terminated(15)))
    run = run_of(request)
    assert (run.outcome, run.unstored) == ("cancelled", True)


def test_a_run_that_a_cold_shutdown_ends_goes_back_though_that_is_not_stored() -> None:
    request = placed_request()
    take_backend_away(request)
    request._announce_cancelled(emit_retry=True)
    request.on_failure(failure(Terminated(15)))
    assert run_of(request).outcome == "lost"


def test_an_error_of_the_app_after_the_result_was_stored_is_the_apps() -> None:
    request = placed_request()

    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("a handler of the app's")

    vars(request.app.backend).update(mark_as_failure=broken)
    with pytest.raises(RuntimeError, match="handler"):
        request.on_failure(failure(ValueError("boom")))
    run = run_of(request)
    assert (run.outcome, run.unstored, run.flaw) == ("failed", False, "it raised ValueError")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("a secret"), "it raised ValueError"),
        (Reject("a secret"), "it raised Reject"),
        (WorkerLostError("Worker exited prematurely: exitcode 3."), "it ended its own process"),
        (SoftTimeLimitExceeded(1), "it raised SoftTimeLimitExceeded"),
    ],
)
def test_a_failed_run_has_a_reason(error: BaseException, why: str) -> None:
    request = placed_request()
    vars(request.app.backend).update(mark_as_failure=lambda *args, **options: None)
    request.on_failure(failure(error))
    assert (run_of(request).outcome, run_of(request).flaw) == ("failed", why)


def test_a_run_that_its_time_limit_ends_has_that_reason() -> None:
    request = placed_request()
    vars(request.app.backend).update(mark_as_failure=lambda *args, **options: None)
    request.on_timeout(False, 1.5)
    assert (run_of(request).outcome, run_of(request).flaw) == (
        "failed",
        "its time limit of 1.5 s was over",
    )
