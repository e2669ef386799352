"""Accounts of the keys of `warm`: counted as any account, without a ceiling, and no reason to wait."""

from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.inspect.tenancy import read_holders_of, read_limits
from parsync_redis.model.kind import Kind
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.serve.survey import read_survey
from parsync_redis.store import Store
from parsync_redis.store.reads.accounts import WarmKey
from parsync_redis.store.reads.views import ViewReader
from parsync_redis.store.repair.repair_all import repair_all
from parsync_redis.wire.keys import Keys
from tests.kit.driver import Driver
from tests.store.lua.test_accounts import Limited

OPTIONS = TaskOptions.of({"prefer": ["warm:llama:7b", "zone=a"], "limits": ["stripe"]})
KIND = Submission("a", "work", b"", OPTIONS).kind.text


@pytest.fixture
def warm(drive: Driver) -> Limited:
    """Return a cluster whose policy knows the limit `stripe`, and no key."""
    warm = Limited(drive, ("stripe", "units=9"))
    warm.submit("abcd", OPTIONS)
    return warm


def test_a_key_without_an_entry_of_the_policy_has_room(warm: Limited) -> None:
    assert KIND == "work slots=1 prefer=warm=llama:7b,zone:a under=stripe"
    took = warm.take(KIND, 3)
    assert [task.id for task in took.tasks] == ["a", "b", "c"]
    assert took.changes[-2:] == [
        ("=stripe", "n=3 units=3 of units=9"),
        ("=~llama:7b", "n=3 units=3 of -"),
    ]


@pytest.mark.parametrize("how", ["finish", "requeue", "give back", "cancel"])
def test_a_task_that_ends_or_goes_back_leaves_its_key(warm: Limited, how: str) -> None:
    took = warm.take(KIND, 2)
    commands = warm.commands
    call: Any = {
        "finish": lambda: commands.finish([(warm.start(took), "succeeded", "")]),
        "requeue": lambda: commands.requeue([(warm.start(took), "lost")]),
        "give back": lambda: commands.give_back("s1", [("a", took.tasks[0].attempt, "", "")]),
        "cancel": lambda: commands.cancel(["a"]),
    }
    warm.run(call[how]())
    assert warm.line("~llama:7b") == "n=1 units=1 of -"


def test_lists_of_limits_hide_keys_and_the_holders_of_a_key_are_told(store: Store) -> None:
    warm = Limited(Driver(store), ("stripe", "units=9"))
    warm.submit("ab", OPTIONS)
    warm.start(warm.take(KIND, 2))
    assert [limit.name for limit in read_limits(store)] == ["stripe"]
    assert [holder.id for holder in read_holders_of(store, "~llama:7b")] == ["a", "b"]
    with pytest.raises(InvalidInput, match="key 'a b' is not valid"):
        read_holders_of(store, "~a b")


def test_a_survey_has_the_keys_to_which_tasks_count_with_the_needs_of_the_oldest(
    store: Store,
) -> None:
    warm = Limited(Driver(store), ("stripe", "units=9"))
    assert read_survey(store, ViewReader()).warm_keys == []
    warm.submit("abc", OPTIONS)
    large = TaskOptions.of({"prefer": ["warm:mistral"], "slots": 2, "require": {"zone": "a"}})
    warm.submit("d", large)
    assert read_survey(store, ViewReader()).warm_keys == [], "none is taken"
    warm.start(warm.take(KIND, 2))
    warm.take("work slots=2 zone:a prefer=warm=mistral")
    survey = read_survey(store, ViewReader())
    assert survey.warm_keys == [
        WarmKey("llama:7b", 2, "slots=1"),
        WarmKey("mistral", 1, "slots=2 zone:a"),
    ]
    warm.client.flushdb()
    assert read_survey(store, ViewReader(), times_of=survey).warm_keys == survey.warm_keys


def _line(text: str) -> Callable[[Any, Keys], object]:
    return lambda client, keys: client.hset(keys.queue("accounts"), "~llama:7b", text)


DAMAGES: dict[str, Callable[[Any, Keys], object]] = {
    "junk": _line("junk"),
    "too many": _line("n=77 units=77"),
    "gone": lambda client, keys: client.hdel(keys.queue("accounts"), "~llama:7b"),
    "the holders": lambda client, keys: client.delete(keys.holders("~llama:7b")),
    "the type of the holders": lambda client, keys: (
        client.delete(keys.holders("~llama:7b")),
        client.set(keys.holders("~llama:7b"), "x"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_key_stops_no_task_and_is_counted_anew(warm: Limited, damage: str) -> None:
    warm.start(warm.take(KIND, 2))
    DAMAGES[damage](warm.client, warm.drive.keys)
    assert warm.ids(KIND, 1) == ["c"], "a key is no reason to wait"
    assert repair_all(warm.drive.store)
    assert repair_all(warm.drive.store, dry=True) == []
    assert warm.line("~llama:7b") == "n=3 units=3 of -"
    assert warm.ids(KIND, 1) == ["d"]


def test_a_run_that_has_lost_its_line_keeps_its_key(drive: Driver) -> None:
    warm = Limited(drive, ("stripe", "units=9"))
    message = b'{"headers": {"task": "work"}}'
    warm.run(warm.commands.submit([Submission("a", "work", message, OPTIONS)]))
    warm.start(warm.take(KIND, 1))
    warm.client.hdel(drive.keys.queue("tasks"), "a")
    assert warm.run(warm.commands.repair_task("a", "why")) == "running"
    assert drive.line("a").kind == "work slots=1 prefer=warm=llama:7b under=stripe"
    repair_all(drive.store)
    assert repair_all(drive.store, dry=True) == []
    assert warm.line("~llama:7b") == "n=1 units=1 of -"


@pytest.mark.parametrize(
    "prefer",
    ["warm=_a", f"warm={'x' * 129}", "warm=a=b", "warm=a,warm=b", "warm=a|b", "warm=a,,b"],
)
def test_a_kind_with_a_key_that_no_account_may_have_is_refused(drive: Driver, prefer: str) -> None:
    text = f"work slots=1 prefer={prefer}"
    with pytest.raises(ValueError, match="not a kind of task"):
        Kind.of(text)
    options = TaskOptions(prefer=prefer)
    with pytest.raises(Exception, match="preferences are prefer=RULE,RULE behind the needs"):
        drive.store.run(drive.commands.submit([Submission("a", "work", b"", options)]))
