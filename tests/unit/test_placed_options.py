"""The tasks that parsync places, and their options."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task

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
    """Do nothing, as a task."""


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
    assert parsync.options_of("proj.train", None, {"slots": 5}) == {
        "slots": 5,
        "resources": {"gpu": 1},
    }
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
        ("unit.plain", {"attempt": "1@1"}, None, {"_as_recorded": True}),
        ("unit.plain", {}, None, None),
    ],
)
def test_call_options_override_options_of_an_earlier_attempt_which_override_task_options(
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


def by_tenant(
    name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **more: Any
) -> Any:
    """Route a task by one of its arguments."""
    return {"queue": kwargs["tenant"]} if name == "unit.placed" else None


@pytest.mark.parametrize(
    "conf",
    [
        {"task_routes": (by_tenant,)},
        {
            "task_routes": {"unit.placed": {"queue": "undeclared"}},
            "task_create_missing_queues": False,
        },
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
    messages = [record.getMessage() for record in caplog.records if "route" in record.getMessage()]
    assert len(messages) == 1
    assert messages[0].startswith("task unit.placed has no queue when it is submitted by name only")


class Batch(Task):  # type: ignore[misc,unused-ignore]
    """A task that keeps its requests, and runs many of them as one call, as celery-batches does."""

    abstract = True

    def Strategy(self, task: Any, app: Any, consumer: Any) -> Any:  # noqa: N802 # as Celery has it
        """Keep requests."""


class Started(Task):  # type: ignore[misc,unused-ignore]
    """A task that is started in a way of its own."""

    abstract = True

    def start_strategy(self, app: Any, consumer: Any, **kwargs: Any) -> Any:
        """Keep requests."""


@pytest.mark.parametrize("base", [Batch, Started])
def test_a_task_with_a_strategy_of_its_own_is_placed_by_nobody(base: Any) -> None:
    """The worker never learns that such a request has ended, so the slots of the task would be held for ever."""
    app = new_app()
    # before there is a Parsync
    app.task(name="unit.batch", base=base, shared=False, parsync=True)(nothing)
    parsync = Parsync(app)
    app.task(name="unit.ordinary", base=base, shared=False)(nothing)
    with pytest.raises(
        InvalidInput, match=rf"^a task of {base.__qualname__} cannot be placed by parsync"
    ):
        app.task(base=base, shared=False, parsync={"slots": 1})
    app.tasks.pop("unit.bad")
    with pytest.raises(
        InvalidInput, match=r"^task unit\.batch: task unit\.batch cannot be placed .* parsync=False"
    ):
        parsync.check_tasks()
    with pytest.raises(InvalidInput, match=r"^task unit\.ordinary cannot be placed"):
        app.tasks["unit.ordinary"].apply_async(parsync={"slots": 1})
    app.tasks.pop("unit.batch")
    parsync.check_tasks()
    known = {name for name in parsync.options.known_tasks().declared if name.startswith("unit.")}
    assert known == {"unit.placed", "unit.plain"}, "a submit by name would place it"
    assert parsync.options_of("unit.ordinary", None, None) is None, "it goes to the broker"


def test_celerys_strategy_by_another_spelling_is_celerys() -> None:
    app = new_app()
    parsync = Parsync(app)
    app.task(
        name="unit.same", shared=False, parsync=True, Strategy="celery.worker.strategy.default"
    )(nothing)
    assert parsync.options_of("unit.same", None, None) == {}


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"slots": 0}, "slots=0 is not valid: it must be a whole number from 1 to 10,000"),
        ({"slot": 2}, "did you mean slots?"),
        ({"num_gpus": 1}, "did you mean resources={'gpu': 1}?"),
        ({"mem": "4GiB"}, "did you mean resources={'mem': '4GiB'}?"),
        (5, "it must be a dict, True or False"),
    ],
)
def test_a_declaration_is_refused_as_a_worker_would_refuse_it(declared: Any, why: str) -> None:
    app = new_app()
    Parsync(app)
    with pytest.raises(InvalidInput) as refused:
        app.task(shared=False, parsync=declared)
    assert str(refused.value).startswith(f"parsync={declared!r} is not valid: ")
    assert str(refused.value).endswith(why)


@pytest.mark.parametrize("name", ["parsinc", "parsyc", "Parsync", "parsynch"])
def test_an_option_that_is_nearly_parsync_is_warned_of_and_passed_on(name: str) -> None:
    app = new_app()
    Parsync(app)
    with pytest.warns(
        UserWarning, match=rf"^{name}=.*did you mean parsync=\{{'slots': 2\}}\?$"
    ) as seen:
        task = app.task(name="unit.misspelt", shared=False, **{name: {"slots": 2}})(nothing)
    assert seen[0].filename == __file__, "the warning names the line of the declaration"
    assert getattr(task, name) == {"slots": 2}
    with pytest.warns(UserWarning, match=f"^{name}=") as seen, pytest.raises(InvalidInput):
        task.apply_async(parsync=5, **{name: {"slots": 2}})
    assert seen[0].filename == __file__, "the warning names the line of the call"


@pytest.mark.parametrize(
    "name", ["is_async", "sync", "asynchronous", "parse", "resources", "slots"]
)
def test_an_attribute_that_resembles_parsync_is_accepted(name: str) -> None:
    app = new_app()
    Parsync(app)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            getattr(app.task(name="unit.attribute", shared=False, **{name: 1})(nothing), name) == 1
        )


@pytest.mark.parametrize("option", ["resources", "slots", "require", "near", "max_starts"])
def test_an_option_beside_parsync_in_a_call_is_refused_for_placed_tasks_only(option: str) -> None:
    app = new_app()
    parsync = Parsync(app)
    sent: list[Any] = []
    app.amqp._create_task_sender = lambda: lambda *_, **more: sent.append(more)
    with pytest.raises(
        InvalidInput, match=rf"^{option}=.* call of task unit\.placed .* into parsync="
    ):
        app.tasks["unit.placed"].apply_async(ignore_result=True, **{option: 1})
    assert sent == []
    app.tasks["unit.plain"].apply_async(ignore_result=True, **{option: 1})
    assert sent[0][option] == 1, "it is a property of one's own"
    assert parsync.options_of("unit.placed", None, {option: 1})
