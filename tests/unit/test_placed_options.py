"""The tasks that parsync places, and their options."""

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from parsync_redis import InvalidInput, Parsync
from parsync_redis.settings import load_rules

RULES = """
[place]
"proj.train" = { slots = 2, resources = { gpu = 1 } }
"proj.ping" = false
"proj.*" = true
"celery.chord_unlock" = { priority = 3 }
"""


def nothing() -> None:
    """A task."""


def test_rules_place_tasks_by_name_and_what_task_and_call_say_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parsync.toml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    app = Celery("ruled", broker="memory://", set_as_current=False)
    parsync = Parsync(app, url="redis://127.0.0.1:1/0")
    for name in ("proj.train", "proj.other", "proj.ping", "other"):
        app.task(name=name, shared=False)(nothing)
    app.task(name="proj.own", parsync={"slots": 3}, shared=False)(nothing)
    app.task(name="proj.never", parsync=False, shared=False)(nothing)
    expected = {
        "proj.train": {"slots": 2, "resources": {"gpu": 1}},
        "proj.other": {},
        "proj.ping": None,
        "other": None,
        "celery.chord_unlock": {"priority": 3},
        "celery.backend_cleanup": None,
        "proj.own": {"slots": 3},
        "proj.never": None,
    }
    assert {name: parsync.options_of(name, None, None) for name in expected} == expected
    assert parsync.options_of("proj.train", None, {"slots": 5}) == {"slots": 5, "resources": {"gpu": 1}}
    assert parsync.options_of("proj.train", None, False) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('place = "all"', "[place] in "),
        ('[place]\n"a" = "yes"', 'the rule [place."a"] in '),
        ('[place]\n"a" = { slot = 1 }', "unknown parsync option 'slot'"),
        ('[places]\n"a" = true', "unknown setting 'places'"),
    ],
)
def test_a_rule_without_sense_is_refused_by_its_name(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "parsync.toml").write_text(text)
    with pytest.raises(InvalidInput) as refused:
        load_rules(tmp_path / "parsync.toml")
    assert why in str(refused.value)


def new_app(**options: Any) -> Any:
    app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False, **options)

    @app.task(shared=False, name="unit.placed", parsync={"slots": 2, "priority": 1})
    def placed() -> None: ...

    @app.task(shared=False, name="unit.plain")
    def plain() -> None: ...

    @app.task(shared=False, name="unit.bad", parsync={"slot": 2})
    def bad() -> None: ...

    return app


@pytest.mark.parametrize(
    ("name", "carried", "call", "options"),
    [
        ("unit.placed", None, None, {"slots": 2, "priority": 1}),
        ("unit.placed", None, {"slots": 3}, {"slots": 3, "priority": 1}),
        ("unit.placed", {"options": {"priority": 7}}, {"slots": 3}, {"slots": 3, "priority": 7}),
        ("unit.placed", None, False, None),
        ("unit.placed", False, None, None),
        ("unit.placed", False, True, {"slots": 2, "priority": 1}),
        ("unit.plain", None, None, None),
        ("unit.plain", None, True, {}),
        ("unit.plain", {"options": {"slots": 3}}, None, {"slots": 3}),
        ("unit.plain", {"attempt": "1@1"}, None, {}),
        ("unit.plain", {}, None, None),
    ],
)
def test_options_of_the_call_come_before_those_of_an_earlier_attempt_and_these_before_the_tasks_own(
    name: str, carried: Any, call: Any, options: Any
) -> None:
    app = new_app()
    assert Parsync(app).options_of(name, carried, call) == options


def test_a_tasks_own_options_are_known_before_the_app_was_finalized() -> None:
    app = new_app()
    assert not app.finalized
    assert Parsync(app).options_of("unit.placed", None, None) is not None


def test_wrong_options_are_refused_with_the_name_of_their_task() -> None:
    parsync = Parsync(new_app())
    with pytest.raises(InvalidInput, match=r"parsync=5 of task unit\.plain"):
        parsync.options_of("unit.plain", None, 5)
    with pytest.raises(InvalidInput, match=r"task unit\.bad: unknown parsync option 'slot'"):
        parsync.check_tasks()


def by_tenant(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **more: Any) -> Any:
    """A router that reads an argument."""
    return {"queue": kwargs["tenant"]} if name == "unit.placed" else None


@pytest.mark.parametrize(
    "conf",
    [
        {"task_routes": (by_tenant,)},
        {"task_routes": {"unit.placed": {"queue": "undeclared"}}, "task_create_missing_queues": False},
    ],
)
def test_a_task_whose_route_cannot_be_found_without_arguments_declares_no_queue(
    conf: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app()
    app.conf.update(conf)
    parsync = Parsync(app)
    for _ in range(2):
        assert parsync.options.known_tasks().declared["unit.placed"] == {"slots": 2, "priority": 1}
    said = [record.getMessage() for record in caplog.records if "route" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("task unit.placed has no queue when it is submitted by name only")
