"""Parsync(app): an app's own components, an app that is pickled, and one Parsync for an app."""

import pickle
import re
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control

from parsync_redis import InvalidInput, Parsync
from parsync_redis.model.apps import KnownTasks
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


def test_declared_limits_are_read_as_the_policys_are_and_pickled_with_the_app() -> None:
    app = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)
    limits: Any = {"stripe": 5, "customer:*": 1, "api": {"at_once": 5, "rate": "100/m"}}
    Parsync(app, url="redis://127.0.0.1:9/3", limits=limits)
    copy = pickle.loads(pickle.dumps(app))
    assert copy.amqp.send_task_message
    tasks = copy.parsync.options.known_tasks()
    assert (tasks.limits, tasks.app) == (app.parsync.limits, "shop")
    assert {name: entry.ceiling for name, entry in tasks.limits.items()} == {
        "stripe": "units=5",
        "customer:*": "units=1",
        "api": "units=5 rate=100/60000 burst=10",
    }
    assert set(tasks.declared) == set(KnownTasks.of(tasks.declared).declared)


@pytest.mark.parametrize(
    ("limits", "right"),
    [
        ({"stripe": -1}, "limits.stripe.at_once must be a whole number from 0 to 1,000,000"),
        ({"stripe": True}, "limits.stripe.at_once must be a whole number"),
        ({"stripe": "5"}, 'limits.stripe must be a whole number, or a dict such as {"at_once": 5'),
        ({"stripe": {}}, "limits.stripe must have at_once = 5"),
        ({"stripe": {"at_onc": 5}}, "unknown key limits.stripe.at_onc; did you mean at_once?"),
        ({"stripe": {"rate": "5/x"}}, "limits.stripe.rate must be a text such as"),
        ({"a*": 1}, "limit 'a*' is not valid: a pattern is a name and its first colon"),
        ({"a b": 1}, "limit 'a b' is not valid"),
        ({7: 1}, "limits: 7 is not valid: the name of a limit is text"),
        (["stripe"], "limits=['stripe'] is not valid: it must be a dict such as"),
    ],
)
def test_a_declared_limit_that_is_not_valid_is_refused_with_what_would_be_right(
    limits: Any, right: str
) -> None:
    app = new_app()
    with pytest.raises(InvalidInput, match=f"^{re.escape(right)}"):
        Parsync(app, limits=limits)
    assert getattr(app, "parsync", None) is None


def test_an_app_has_one_parsync() -> None:
    app = new_app()
    Parsync(app)
    with pytest.raises(InvalidInput, match="has a Parsync already"):
        Parsync(app)
