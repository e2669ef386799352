"""A task option is equal everywhere: client, command line, declarations, rules, messages, retries,
record, pages.

Each test names the option that a place lacks. The table is model/options.py; CONTRIBUTING.md has
the check-list.
"""

import re
import sys
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import typer.main

from parsync_redis.cli.options import from_flags, parse_limits
from parsync_redis.cli.tasks import register
from parsync_redis.errors import InvalidInput
from parsync_redis.model.apps import KnownTasks
from parsync_redis.model.options import (
    CLIENT_NAMES,
    DEFAULT_OPTIONS,
    OPTIONS,
    STORED,
    Option,
    TaskOptions,
)
from parsync_redis.model.status import kept_options
from parsync_redis.model.task import TaskState
from parsync_redis.settings import load_rules
from parsync_redis.store import Store
from parsync_redis.submission import ITEM_KEYS, PlanOptions, SubmitOptions, make_submission
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.message_options import CELERY_OPTIONS
from tests.kit import REPO
from tests.kit.driver import Driver
from tests.kit.waiting import run

IN_NEEDS = {"slots", "resources", "require", "tolerate", "apart", "interruptible"}
every = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
of_the_client = pytest.mark.parametrize(
    "option", [option for option in OPTIONS if not option.celerys], ids=lambda option: option.name
)
kept = pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.stored], ids=lambda option: option.name
)


def asked(option: Option) -> TaskOptions:
    """Return the options of a task that asks for an option's example."""
    return TaskOptions.of({option.name: option.example})


@every
def test_an_option_is_a_field_of_a_tasks_options(option: Option):
    field = "needs" if option.name in IN_NEEDS else option.name
    assert field in {field.name for field in fields(TaskOptions)}, (
        f"TaskOptions has no field for {option.name}"
    )
    assert getattr(asked(option), field) != getattr(DEFAULT_OPTIONS, field), (
        f"{option.name} is checked and then lost"
    )


@every
def test_a_wrong_value_is_refused_with_the_options_rule(option: Option):
    with pytest.raises(
        InvalidInput, match=rf"^{option.name}=.* is not valid: it must be {re.escape(option.rule)}$"
    ):
        TaskOptions.of({option.name: object()})


@of_the_client
def test_the_client_takes_an_option(option: Option):
    assert option.name in ITEM_KEYS, f"submit_many does not know {option.name}"
    task = make_submission({"name": "work", option.name: option.example})
    assert task.options == asked(option), (
        f"client.submit({option.name}=...) does not arrive in the submission"
    )


@every
def test_the_command_line_has_a_flag_for_an_option(option: Option):
    app = typer.Typer()
    register(app)
    command: Any = typer.main.get_command(app)
    flags = {
        flag: parameter
        for parameter in command.commands["tasks submit"].params
        for flag in parameter.opts
    }
    assert option.flag in flags, f"parsync submit has no flag for {option.name}"
    assert flags[option.flag].help == option.help
    many = isinstance(option.example, dict)
    assert flags[option.flag].multiple == isinstance(option.example, dict | list)
    value = (
        [f"{name}={value}" for name, value in option.example.items()] if many else option.example
    )
    given: dict[str, Any] = {flag.removeprefix("--").replace("-", "_"): None for flag in flags}
    given[option.flag.removeprefix("--").replace("-", "_")] = value
    assert {name: value for name, value in from_flags(given).items() if value is not None} == {
        option.name: option.example
    }


def test_units_of_limits_are_written_behind_a_star_on_the_command_line():
    assert parse_limits("--limit", ["licence*2", "stripe"]) == {"licence": 2, "stripe": 1}
    assert parse_limits("--limit", None) == []
    for words in (["a*"], ["a*x"], ["a*2", "a"]):
        with pytest.raises(InvalidInput, match=r"it must be NAME or NAME\*UNITS, each name once"):
            parse_limits("--limit", words)


@every
def test_a_declared_option_holds_for_a_submit_by_name(option: Option):
    declared = {"work": {option.name: option.example}}
    known = KnownTasks(KnownTasks.of(declared).text).declared
    assert known == declared, (
        f"what an app says of {option.name} is not what its workers registered"
    )
    task = make_submission({"name": "work"}, known)
    if option.celerys:
        assert task.expiry_ms is not None, f"a declared {option.name} is lost"
    else:
        assert task.options == asked(option), f"a declared {option.name} is lost"


@every
def test_a_rule_of_the_settings_file_takes_an_option(option: Option, tmp_path):
    value = option.example
    said = f'"{value}"' if isinstance(value, str) else str(value).lower()
    if isinstance(value, dict):
        said = "{" + ", ".join(f'{name} = "{amount}"' for name, amount in value.items()) + "}"
    (tmp_path / "parsync.toml").write_text(f'[place]\n"work" = {{{option.name} = {said}}}\n')
    rules = load_rules(tmp_path / "parsync.toml")
    assert rules == {"work": {option.name: value}}, f"[place] does not take {option.name}"


@of_the_client
def test_a_message_that_no_worker_knew_carries_an_option(option: Option):
    task = make_submission({"name": "work", option.name: option.example}, {})
    carried = open_envelope(task.message)["headers"]["parsync"]
    assert carried == {"options": {option.name: option.example}, "undeclared": True}, (
        f"{option.name} is not carried"
    )


@kept
def test_a_task_keeps_an_option_and_so_does_its_successor(fake_store: Store, option: Option):
    """A retry of a task from a client without an app reads its options from the record of the task."""
    drive = Driver(fake_store)
    drive.run(drive.commands.set_policy([("stripe", "units=5")]))
    asks = {option.name: option.example}
    drive.submit("a", asks)
    assert kept_options(drive.status("a")) == asked(option), (
        f"the record of a task lacks {option.name}: a retry loses it"
    )
    place = drive.bring(TaskState.RUNNING, "b")
    assert drive.submit("b", asks, after=place.attempt) == "next"
    assert drive.finish(place, "again") == "again"
    assert kept_options(drive.status("b")) == asked(option), f"a successor loses {option.name}"


def test_only_two_client_options_are_not_stored_with_the_task():
    """An option that matters after the submit and is not stored would be lost with the
    first retry.
    """
    assert set(CLIENT_NAMES) - set(STORED) - IN_NEEDS == {"wait_for_capacity", "near"}


def test_type_checkers_know_the_options_of_the_table():
    plan = get_type_hints(PlanOptions)
    submit = get_type_hints(SubmitOptions)
    assert set(plan) == set(CLIENT_NAMES)
    assert set(submit) == {*CLIENT_NAMES, "queue", *CELERY_OPTIONS} - {"expires"}
    for option in OPTIONS:
        if option.name in plan:
            kinds = get_args(plan[option.name])
            kinds = kinds if get_origin(plan[option.name]) is UnionType else (plan[option.name],)
            assert isinstance(option.example, tuple(get_origin(kind) or kind for kind in kinds))


CALLS = """
from parsync_redis import AsyncParsyncClient, ParsyncClient

async def calls(client: ParsyncClient, loop_client: AsyncParsyncClient) -> None:
    client.submit("work", slots=2, resources={"gpu": 0.5}, time_limit=3, queue="gpu")
    client.plan("work", slots=2)
    await loop_client.submit("work", slots=2)
    client.submit("work", slot=2)
    client.plan("work", slots="two")
    await loop_client.submit("work", slot=2)
"""


def test_a_type_checker_finds_a_misspelt_option(tmp_path):
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(file)]
    checked = run(command, cwd=REPO, capture_output=True, text=True)
    wrong = re.findall(r"calls\.py:(\d+): error: (.*?)  \[", checked.stdout)
    assert [int(line) for line, _ in wrong] == [8, 9, 10], checked.stdout
    assert 'Unexpected keyword argument "slot"' in wrong[0][1]
