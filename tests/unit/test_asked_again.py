"""A run that asks for another one: how it ends if the submit is refused, or in doubt."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Reject

from parsync_redis import Infeasible, InvalidInput, Parsync, ParsyncError, UnknownTask
from parsync_redis.errors import AccessDenied, BrokenContract
from parsync_redis.integration.publish import Full, ReadOnly, Unreachable

ASKS: dict[str, Callable[[Any], object]] = {
    "retry": lambda task: task.retry(countdown=0),
    "replace": lambda task: task.replace(task.si()),
}


def asks(how: str, error: ParsyncError, **request: object) -> None:
    """Have a task ask for another run, while the submit raises this error."""
    app = Celery("unit", broker="memory://", set_as_current=False)
    parsync = Parsync(app, url="redis://127.0.0.1:1/0", cluster="unit")

    @app.task(name="proj.again", shared=False, bind=True, parsync=True)
    def again(self: Any) -> None: ...

    def submit(*_: object) -> None:
        raise error

    vars(parsync).update(submit=submit)
    task = app.tasks["proj.again"]
    task.push_request(
        **{"id": "t", "args": (), "kwargs": {}, "called_directly": False, "is_eager": False}
        | request
    )
    try:
        ASKS[how](task)
    finally:
        task.pop_request()


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("retry", Unreachable("no answer")),
        ("retry", ReadOnly("a replica")),
        ("retry", Full("no memory")),
        ("replace", Unreachable("no answer")),
    ],
)
def test_a_result_in_doubt_or_refused_for_now_goes_back_without_a_failure(
    how: str, error: ParsyncError
) -> None:
    with pytest.raises(Reject) as raised:
        asks(how, error)
    assert raised.value.requeue
    assert repr(raised.value.reason) == repr(error)


@pytest.mark.parametrize("how", ASKS)
@pytest.mark.parametrize(
    "kind", [InvalidInput, Infeasible, UnknownTask, AccessDenied, BrokenContract]
)
def test_a_lasting_refusal_fails_its_task(how: str, kind: type[ParsyncError]) -> None:
    with pytest.raises(kind):
        asks(how, kind("refused"))
