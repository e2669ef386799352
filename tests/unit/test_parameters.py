"""Parameters of a task in its tenant and limits: `limits=["customer:{customer_id}"]`."""

from typing import Any

import pytest
from celery import Celery

from parsync_redis import InvalidInput, Parsync
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.parameters import Arguments, fill, with_samples, without_parameters
from parsync_redis.submission import make_submission
from parsync_redis.testing.eager import Eager
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.tenant import submitting_for

OPTIONS = {"tenant": "research/{user}", "limits": ["customer:{customer_id}", "stripe"]}


def filled(options: dict[str, Any], *args: Any, names: Any = (), **kwargs: Any) -> TaskOptions:
    return TaskOptions.of(fill(options, Arguments("work", args, kwargs, names)))


def test_parameters_are_filled_from_arguments_by_name_and_by_position() -> None:
    by_name = filled(OPTIONS, user="anna", customer_id=7)
    by_position = filled(OPTIONS, 7, "anna", names=["customer_id", "user"])
    assert (by_name.tenant, by_name.limits) == ("research/anna", "customer:7,stripe")
    assert by_position == by_name
    units = filled({"limits": {"customer:{a}": 2, "customer:{b}": 1}}, a=7, b="7")
    assert units.limits == "customer:7*2", "two limits that become one have the larger units"
    pair = filled({"limits": ["customer:{a}", "customer:{b}"]}, a=7, b=7)
    assert pair.limits == "customer:7"
    warm = filled({"prefer": ["zone=a", "warm:{model}/v{n}"]}, model="llama:7b", n=2)
    assert warm.prefer == "zone:a,warm=llama:7b/v2"


@pytest.mark.parametrize(
    ("options", "kwargs", "error"),
    [
        (
            {"limits": ["c:{id}"]},
            {},
            "'c:{id}' of task work needs the argument id, which the call does not give",
        ),
        (
            {"limits": ["c:{id}"]},
            {"id": None},
            "'c:{id}' of task work cannot have id=None: it must be text or a whole number",
        ),
        (
            {"limits": ["c:{id}"]},
            {"id": True},
            "'c:{id}' of task work cannot have id=True: it must be text or a whole number",
        ),
        (
            {"limits": ["c:{id}"]},
            {"id": 1.5},
            "'c:{id}' of task work cannot have id=1.5: it must be text or a whole number",
        ),
        (
            {"limits": ["c:{id}"]},
            {"id": ""},
            "'c:{id}' of task work cannot have id='': it must be text or a whole number",
        ),
        ({"limits": ["c:{id}"]}, {"id": "7*9"}, "limit 'c:7*9' is not valid: it must be 1 to 128"),
        ({"limits": ["c:{id}"]}, {"id": "7,x"}, "limit 'c:7,x' is not valid: it must be 1 to 128"),
        ({"limits": ["c:{id}"]}, {"id": "a b"}, "limit 'c:a b' is not valid: it must be 1 to 128"),
        (
            {"prefer": ["warm:{id}"]},
            {},
            "'warm:{id}' of task work needs the argument id, which the call does not give",
        ),
        (
            {"prefer": ["warm:{id}"]},
            {"id": 1.5},
            "'warm:{id}' of task work cannot have id=1.5: it must be text or a whole number",
        ),
        ({"prefer": ["warm:{id}"]}, {"id": "a b"}, "key 'a b' is not valid: it must be 1 to 128"),
        ({"prefer": ["warm:{id}"]}, {"id": "-a"}, "key '-a' is not valid: it must be 1 to 128"),
        ({"tenant": "{id}"}, {"id": "Anna"}, "tenant='Anna' is not valid: it must be up to three"),
        ({"tenant": "a/{id}"}, {"id": "../b"}, "tenant='a/../b' is not valid: it must be up to"),
    ],
)
def test_an_argument_that_is_no_part_of_a_name_is_refused_in_one_sentence(
    options: dict[str, Any], kwargs: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        filled(options, **kwargs)
    assert str(refused.value).startswith(error)


def test_a_positional_argument_whose_name_nobody_told_is_asked_for_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"needs the argument id by name: no worker has told"):
        filled({"limits": ["c:{id}"]}, 7)


@pytest.mark.parametrize("name", ["customer.id", "id!r", "id:>3", "0", "", "a[0]"])
def test_a_parameter_is_a_plain_name(name: str) -> None:
    options = {"limits": [f"c:{{{name}}}"]}
    for check in (with_samples, lambda options: fill(options, Arguments("work"))):
        with pytest.raises(InvalidInput) as refused:
            check(options)
        assert str(refused.value) == (
            f"'c:{{{name}}}' is not valid: {{{name}}} must be the plain name of a parameter, as in "
            "{customer_id}"
        )


def test_a_plan_leaves_out_what_needs_an_argument() -> None:
    assert without_parameters(OPTIONS) == {"limits": ["stripe"]}
    assert without_parameters({"limits": {"c:{id}": 1, "a": 2}}) == {"limits": {"a": 2}}
    warm = without_parameters({"prefer": ["warm:{model}", "pack", {"zone": "a"}]})
    assert warm == {"prefer": ["pack", {"zone": "a"}]}
    assert without_parameters({"slots": 2}) == {"slots": 2}


def new_app() -> Any:
    app = Celery("parameters", broker="memory://", set_as_current=False)
    Parsync(app, url="redis://127.0.0.1:1/0")
    limits = {"limits": ["customer:{customer_id}"]}

    @app.task(shared=False, name="unit.bound", bind=True, parsync=limits)
    def bound(self: Any, amount: int, customer_id: int = 0, *, note: str = "") -> None: ...

    @app.task(shared=False, name="unit.plain", parsync=limits, autoretry_for=(OSError,))
    def plain(customer_id: int) -> None: ...

    class Charge(app.Task):  # type: ignore[name-defined]
        name = "unit.class"
        parsync = limits

        def run(self, customer_id: int) -> None: ...

    app.register_task(Charge())
    return app


@pytest.mark.parametrize(
    ("name", "args"), [("unit.bound", (5, 7)), ("unit.plain", (7,)), ("unit.class", (7,))]
)
def test_a_tasks_signature_tells_the_names_of_its_positional_arguments(
    name: str, args: tuple[int, ...]
) -> None:
    app = new_app()
    for call in ((args, {}), (args[:-1], {"customer_id": 7})):
        options = app.parsync.options_of(name, None, None)
        arguments = Arguments.of(name, (*call, {}))
        assert app.parsync.fill(options, arguments) == {"limits": ["customer:7"]}


def test_a_client_without_the_app_gets_the_names_from_the_worker() -> None:
    declared = new_app().parsync.options.known_tasks().declared
    assert declared["unit.bound"]["parameters"] == ["amount", "customer_id"]
    task = make_submission({"name": "unit.bound", "args": [5, 7]}, declared)
    assert task.options.limits == "customer:7"
    task = make_submission(
        {"name": "unit.bound", "args": [5], "kwargs": {"customer_id": 7}, "limits": ["a{note}"]}
        | {"kwargs": {"customer_id": 7, "note": "x"}},
        declared,
    )
    assert task.options.limits == "ax", "the caller's limits replace the declared limits"
    with pytest.raises(InvalidInput, match="needs the argument customer_id, which the call does"):
        make_submission({"name": "unit.bound", "args": [5]}, declared)


def test_an_eager_call_is_refused_as_a_submit_would_be() -> None:
    app = new_app()
    charge = app.tasks["unit.plain"]
    with Eager(app):
        assert charge.delay(7).successful()
        with pytest.raises(InvalidInput, match="limit 'customer:a b' is not valid"):
            charge.delay("a b")


def test_a_declaration_that_names_no_parameter_of_its_task_is_refused_at_the_start() -> None:
    app = new_app()
    app.parsync.check_tasks()

    @app.task(shared=False, name="unit.wrong", parsync={"tenant": "{customr}"})
    def wrong(customer: str) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        app.parsync.check_tasks()
    assert str(refused.value) == (
        "task unit.wrong: unknown parameter 'customr': known are customer; did you mean customer?"
    )
    with pytest.raises(InvalidInput, match=r"\{a\.b\} must be the plain name of a parameter"):
        app.task(shared=False, name="unit.dotted", parsync={"tenant": "{a.b}"})


@pytest.mark.parametrize("options", [{}, {"shadow": "s"}])
def test_the_message_of_a_client_carries_its_tenant_for_what_its_task_submits(
    options: dict[str, str],
) -> None:
    item = {"name": "work", "args": (7,), **options}
    headers = open_envelope(make_submission(item | {"tenant": "acme"}).message)["headers"]
    assert headers["parsync_tenant"] == "acme"
    with submitting_for({"parsync_tenant": "acme"}):
        inherited = make_submission(item)
        own = make_submission(item | {"tenant": "other"})
        none = make_submission(item | {"tenant": ""})
    assert inherited.options.tenant == "acme"
    assert open_envelope(inherited.message)["headers"]["parsync_tenant"] == "acme"
    assert own.options.tenant == "other"
    assert none.options.tenant == ""
    for message in (none.message, make_submission(item).message):
        assert "parsync_tenant" not in open_envelope(message)["headers"]


def test_an_option_that_the_caller_replaces_needs_no_argument():
    declared = {"f": {"limits": ["customer:{customer_id}"], "tenant": "acme"}}
    task = make_submission({"name": "f", "limits": ["other"]}, declared)
    assert (task.options.limits, task.options.tenant) == ("other", "acme")
