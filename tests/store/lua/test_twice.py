"""Two rows of one task in one call: a script judges them one after the other, as if they were two
calls.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.model.place import Place
from parsync_redis.model.task import StoredState, Submission
from parsync_redis.store import Call
from parsync_redis.store.scripts.calls import Commands
from tests.kit.driver import Driver, dump

Rows = Callable[[Commands, Place], Call[Any]]
TIME = re.compile(r"\b(?:1\d{12}|\d{16})\b")


def task(place: Place, **options: Any) -> Submission:
    return Submission(place.task, "work", b"next", **options)


def other(place: Place) -> Place:
    return replace(place, slots=(1,))


TWICE: dict[str, tuple[StoredState, Rows, list[Any], StoredState]] = {
    "submit": (
        StoredState.GONE,
        lambda c, p: c.submit(
            [task(p), task(p), task(p, publication="c1"), task(p, after=p.attempt)]
        ),
        ["submitted", "exists", "exists", "stale"],
        StoredState.PENDING,
    ),
    "submit a new life": (
        StoredState.FAILED,
        lambda c, p: c.submit(
            [task(p), task(p, publication="c1"), task(p, publication="c1"), task(p)]
        ),
        ["exists", "submitted", "exists", "exists"],
        StoredState.PENDING,
    ),
    "submit successors": (
        StoredState.RUNNING,
        lambda c, p: c.submit(
            [task(p, after=p.attempt), task(p, publication="c1"), task(p, publication="c1")]
        ),
        ["next", "next", "exists"],
        StoredState.RUNNING,
    ),
    "give_back": (
        StoredState.TAKEN,
        lambda c, p: c.give_back("s1", [(p.task, "", "", "why"), (p.task, p.attempt, "", "")]),
        ["pending", "stale"],
        StoredState.PENDING,
    ),
    "confirm": (
        StoredState.TAKEN,
        lambda c, p: c.confirm([p, p, other(p)]),
        ["placed", "yours", "stale"],
        StoredState.PLACED,
    ),
    "start": (
        StoredState.PLACED,
        lambda c, p: c.start([other(p), p, p, other(p)]),
        [
            ("refused", b"placed"),
            ("ok", b"message"),
            ("yours", b"message"),
            ("refused", b"running"),
        ],
        StoredState.RUNNING,
    ),
    "finish": (
        StoredState.RUNNING,
        lambda c, p: c.finish(
            [(p, "failed", "why"), (p, "failed", ""), (p, "succeeded", ""), (p, "again", "")]
        ),
        ["ok", "yours", "stale", "stale"],
        StoredState.FAILED,
    ),
    "finish again": (
        StoredState.RUNNING,
        lambda c, p: c.finish([(other(p), "failed", ""), (p, "again", ""), (p, "succeeded", "")]),
        ["stale", "again", "stale"],
        StoredState.PENDING,
    ),
    "requeue": (
        StoredState.RUNNING,
        lambda c, p: c.requeue([(other(p), ""), (p, "why"), (p, "why")]),
        ["none", "pending", "none"],
        StoredState.PENDING,
    ),
    "revive": (
        StoredState.DEAD,
        lambda c, p: c.revive([p.task] * 2, "why"),
        ["revived", "pending"],
        StoredState.PENDING,
    ),
    "cancel": (
        StoredState.PLACED,
        lambda c, p: c.cancel([p.task] * 2),
        [("cancelled", ""), ("none", "cancelled")],
        StoredState.CANCELLED,
    ),
    "cancel a run": (
        StoredState.RUNNING,
        lambda c, p: c.cancel([p.task] * 2),
        [("asked", ""), ("asked", "")],
        StoredState.RUNNING,
    ),
    "purge": (
        StoredState.FAILED,
        lambda c, p: c.purge("failed", [p.task] * 2),
        ["purged", "gone"],
        StoredState.GONE,
    ),
    "purge the dead": (
        StoredState.DEAD,
        lambda c, p: c.purge("dead", [p.task] * 2),
        ["purged", "gone"],
        StoredState.GONE,
    ),
}


@pytest.mark.dealt
@pytest.mark.parametrize("what", TWICE)
def test_two_rows_of_one_task_are_judged_in_turn(drive: Driver, what: str):
    before, make, answers, after = TWICE[what]
    place = drive.bring(before)
    assert drive.run(make(drive.commands, place)) == answers
    assert drive.state("a") == after


@pytest.mark.dealt
@pytest.mark.parametrize("what", TWICE)
def test_two_rows_leave_what_two_calls_leave(drive: Driver, what: str):
    """Keys and texts of hashes are the same, but for times and versions."""
    before, make, _, _ = TWICE[what]
    call = make(drive.commands, drive.bring(before))
    left = []
    for split in (False, True):
        drive.store.client.flushall()
        drive.bring(before)
        width = len(call.script.header.each)
        head = len(call.script.header.once)
        rows = [call.args[at : at + width] for at in range(head, len(call.args), width)]
        once = list(call.args[:head])
        for some in rows if split else [[word for row in rows for word in row]]:
            once[call.script.header.once.index("count")] = len(some) // width
            drive.run(call._replace(args=[*once, *some], read=lambda reply: reply))
        state = {
            key: value
            for key, (value, _) in dump(drive.store).items()
            if not key.endswith(b":meta")
        }
        left.append(
            {
                key: TIME.sub("T", repr(value)) if isinstance(value, dict) else ""
                for key, value in state.items()
            }
        )
    assert left[0] == left[1]
