"""Parsync(app): an app's own components, an app that is pickled, and one Parsync for an app."""

import pickle
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control

from parsync_redis import InvalidInput, Parsync
from tests.unit.test_placed_options import new_app


def test_attaching_reads_no_configuration() -> None:
    app = new_app()
    Parsync(app)
    assert not app.configured
    app.config_from_object({"task_default_queue": "mine"})
    assert app.amqp.queues.keys() == {"mine"} or app.conf.task_default_queue == "mine"


class MyAMQP(AMQP):  # type: ignore[misc,unused-ignore]
    """An app's own."""


class MyControl(Control):  # type: ignore[misc,unused-ignore]
    """An app's own."""


@pytest.mark.parametrize("made", [False, True])
def test_an_apps_own_components_are_derived_from_made_or_not(made: bool) -> None:
    app = new_app(amqp=MyAMQP, control=MyControl)
    if made:
        assert app.amqp
        assert app.control
        assert app.amqp.send_task_message
    Parsync(app)
    assert isinstance(app.amqp, MyAMQP)
    assert isinstance(app.control, MyControl)
    assert app.amqp.send_task_message.__module__ == "parsync_redis.integration.components"
    assert type(app.control).revoke is not Control.revoke


@pytest.mark.parametrize("options", [{}, {"amqp": MyAMQP, "control": MyControl}])
def test_an_app_that_was_pickled_has_its_parsync(options: Any) -> None:
    app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False, **options)
    Parsync(app, url="redis://127.0.0.1:9/3", cluster="pickled")
    copy = pickle.loads(pickle.dumps(app))
    assert copy.amqp.send_task_message
    assert (copy.parsync.settings().url, copy.parsync.settings().cluster) == (
        "redis://127.0.0.1:9/3",
        "pickled",
    )
    assert isinstance(copy.amqp, options.get("amqp", AMQP))
    assert isinstance(pickle.loads(pickle.dumps(copy)).control, options.get("control", Control))


def test_an_app_has_one_parsync() -> None:
    app = new_app()
    Parsync(app)
    with pytest.raises(InvalidInput, match="has a Parsync already"):
        Parsync(app)
