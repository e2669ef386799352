"""The table of transitions in model/task.py is what the scripts do: every verb in every state."""

from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis.model.place import Place
from parsync_redis.model.task import TRANSITIONS, StoredState, Submission
from parsync_redis.store import Call
from parsync_redis.store.scripts.calls import Commands
from tests.kit.driver import Driver

Make = Callable[[Commands, Place], Call[Any]]

VERBS: dict[str, list[Make]] = {
    "submit": [
        lambda c, p: c.submit([Submission(p.task, "work", b"")]),
        lambda c, p: c.submit([Submission(p.task, "work", b"", after=p.attempt)]),
        lambda c, p: c.submit([Submission(p.task, "work", b"", publication="c1")]),
    ],
    "take": [lambda c, p: c.take("s1", [("work slots=1", 10)])],
    "give_back": [lambda c, p: c.give_back("s1", [(p.task, "", "", "")])],
    "confirm": [lambda c, p: c.confirm([p])],
    "start": [lambda c, p: c.start([p])],
    "finish": [
        (lambda c, p, outcome=outcome: c.finish([(p, outcome, "")]))  # type: ignore[misc]
        for outcome in ("succeeded", "failed", "cancelled", "again")
    ],
    "requeue": [lambda c, p: c.requeue([(p, "")])],
    "revive": [lambda c, p: c.revive([p.task], "why")],
    "expire": [lambda c, p: c.expire()],
    "cancel": [lambda c, p: c.cancel([p.task])],
    "rotate": [lambda c, p: c.rotate()],
    "read_tasks": [lambda c, p: c.read_tasks([p.task])],
    "repair_task": [lambda c, p: c.repair_task(p.task, "why")],
    "note_choices": [lambda c, p: c.note_choices([(p.task, "{}")], 0)],
    "set_reason": [lambda c, p: c.set_reason([("work slots=1", "why")])],
}


def bring(drive: Driver, state: StoredState, variant: str) -> Place:
    place = drive.bring(state)
    if state == StoredState.PENDING:  # so that the verbs name its present attempt
        drive.take()
        drive.run(drive.commands.give_back("s1", [("a", "", "", "")]))
    if variant == "cancel asked" and state == StoredState.RUNNING:
        drive.cancel("a")
    if variant == "last start" and state != StoredState.PENDING and drive.index("tasks"):
        drive.set_options("a", starts=drive.commands.max_starts)
    if variant == "expired" and drive.index("tasks"):
        drive.set_options("a", expires=1)
        drive.store.client.zadd(drive.keys.queue("expires"), {"a": 1})
    return place


@pytest.mark.one_server(0)
@pytest.mark.parametrize("state", list(StoredState))
def test_only_listed_changes_of_state_happen_and_all_of_them(store, state: StoredState):
    drive = Driver(store)
    seen: dict[str, set[StoredState]] = {}
    for verb, makes in VERBS.items():
        for make in makes:
            for variant in ("plain", "cancel asked", "last start", "expired"):
                store.client.flushall()
                place = bring(drive, state, variant)
                drive.run(make(drive.commands, place))
                after = StoredState(drive.state("a"))
                if after != state:
                    seen.setdefault(verb, set()).add(after)
    listed = {verb: set(after) for (before, verb), after in TRANSITIONS.items() if before == state}
    unreachable = (
        {StoredState.CANCELLED} if state in (StoredState.TAKEN, StoredState.PLACED) else set()
    )
    # a cancel is only ever asked of a running task, which then is not taken or placed again
    if "requeue" in listed:
        listed["requeue"] -= unreachable
    assert seen == listed
