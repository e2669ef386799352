"""docs/security.md has a row for the damage that a client's login can do to each key, and each row is true.

For each right to write, a thief uses the right with hostile values. Afterwards a run of another
task still ends, and a new task of another kind is submitted, taken, placed, run and ended. So
nothing here halts the cluster, except the shifted counters that the page names.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from parsync_redis.model.claim import Claim
from parsync_redis.model.ids import new_id
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.security.acl_tables import CLIENT_RIGHTS, READ_COMMANDS, Role
from parsync_redis.store import Store
from tests.kit import REPO
from tests.kit.logins import CLUSTER, Guarded

PAGE = REPO / "docs/security.md"
WRITES = {
    (kind, word)
    for kind, words in CLIENT_RIGHTS.items()
    for word in words.split()
    if word not in READ_COMMANDS
}
GARBAGE = ("", "x", "9" * 400, "\0\xff", "-1", "0 0 0", "a" * 2**20)
NUMBERS = (0, 1, -(10**18), 9 * 10**18, 17)
SAID = re.compile(r"meta has (submitted|version|floor) that is no number|\['elsewhere'\]|'shards'")
"""Complaints about shifted counters that the page allows."""

KIND = "victim slots=1"
IDS = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]
"""The tasks of the victim: one runs, one waits, one is delayed."""


def hostile(word: str) -> Iterator[tuple[Any, ...]]:
    """Yield uses of a right: the words behind the key."""
    fields = [
        *IDS,
        "shards",
        "submitted",
        "version",
        "floor",
        "apps",
        KIND,
        "celery slots=1",
        "victim",
        "\xff",
    ]
    if word == "hset":
        for field in fields:
            yield from (("HSET", field, text) for text in GARBAGE)
    elif word == "hincrby":
        for field in (
            "submitted",
            "version",
            "floor",
            "shards",
            "rotated_ms",
            "apps",
            "waiters",
            "other",
        ):
            yield from (("HINCRBY", field, number) for number in NUMBERS)
    elif word == "hdel":
        yield from (("HDEL", field) for field in fields)
    elif word == "zadd":
        for member in (*IDS, KIND, *GARBAGE):
            yield from (("ZADD", score, member) for score in ("-inf", "+inf", "0", "1e300", "0.5"))
    elif word == "xadd":
        last = f"{2**64 - 1}-{2**64 - 1}"
        yield from (
            ("XADD", id, "event", text) for id in ("*", "9999999999999-0", last) for text in GARBAGE
        )
    elif word == "zrem":
        yield from (("ZREM", member) for member in (*IDS, KIND))
    elif word == "lpush":
        yield from (("LPUSH", text) for text in GARBAGE)
    elif word == "lrem":
        yield from (("LREM", 0, text) for text in GARBAGE)
    elif word == "ltrim":
        yield ("LTRIM", 1, 0)
    elif word == "del":
        yield ("DEL",)
    elif word == "expire":
        yield from (("EXPIRE", seconds) for seconds in (0, 1))
    else:
        raise AssertionError(f"say how a thief would use {word}")


@pytest.fixture
def scripts(guarded: Guarded) -> None:
    """Load the scripts once: the server keeps them, and a stage is made a thousand times."""
    store = Store.from_url(guarded.url(Role.SCHEDULER), CLUSTER)
    store.load_scripts()
    store.client.close()


class Stage:
    """A cluster with a node, a task that runs and tasks of a victim in each state; each login has
    its store.
    """

    def __init__(self, guarded: Guarded) -> None:
        guarded.admin.flushall()
        self.thief: Any = redis.Redis.from_url(guarded.url(Role.CLIENT))
        self.client, self.scheduler, self.worker = (
            Store.from_url(guarded.url(role), CLUSTER)
            for role in (Role.CLIENT, Role.SCHEDULER, Role.WORKER)
        )
        self.commands = self.client.commands
        self.keys = self.client.keys
        self.inc, self.first = self.worker.run(
            self.commands.register_node(0, "n1", 0, 1.0, "slots=9")
        )
        self.slot = 0
        self.running = self.begin("other")
        self.victim = self.begin("victim", IDS[0])
        self.submit("victim", IDS[1])
        self.submit("victim", IDS[2], delay_ms=10**8)

    def submit(self, name: str, id: str, delay_ms: int | None = None) -> None:
        task = Submission(id, name, b"{}", delay_ms=delay_ms, expiry_ms=10**9 if delay_ms else None)
        assert self.client.run(self.commands.submit([task])) == ["submitted"]

    def begin(self, name: str, id: str = "") -> Place:
        """Submit a task and start it."""
        id = id or new_id()
        self.submit(name, id)
        took = self.scheduler.run(self.commands.take("s1", [(f"{name} slots=1", 500)]))
        (task,) = [task for task in took.tasks if task.id == id]
        epoch = int(self.scheduler.client.hget(self.keys.partition(0, "meta"), "epoch"))  # type: ignore[arg-type]
        claim = Claim(id, task.attempt, 0, "n1", (self.slot,), self.inc, "", self.first, epoch)
        self.slot += 1
        (verdict,) = self.scheduler.run(self.commands.commit(0, [claim])).verdicts
        assert verdict.word == "held"
        place = Place(id, task.attempt, 0, "n1", claim.slots, self.inc, int(verdict.detail))
        assert self.worker.run(self.commands.start([place])) == [("ok", b"{}")]
        return place

    def end(self, place: Place) -> list[str]:
        self.worker.run(self.commands.release(0, [place]))
        return self.worker.run(self.commands.finish([(place, "succeeded", "")]))

    def close(self) -> None:
        for store in (self.client, self.scheduler, self.worker):
            store.client.close()
        self.thief.close()


def test_the_page_has_a_row_for_each_key_that_a_client_may_write_and_no_other():
    rows = re.findall(r"^\| `(q:\w+)` \| ([A-Z, ]+) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    told = {(kind, word.strip().lower()) for kind, words in rows for word in words.split(",")}
    assert sorted(told) == sorted(WRITES)


@pytest.mark.usefixtures("scripts")
@pytest.mark.dealt
@pytest.mark.parametrize(("kind", "word"), sorted(WRITES))
def test_no_right_of_a_client_halts_the_cluster(guarded: Guarded, kind: str, word: str):
    wrong = []
    stage = Stage(guarded)
    name = {
        "q:extra": stage.keys.extra(IDS[0]),
        "q:holders": stage.keys.holders("stripe"),
        "q:pending": stage.keys.pending(KIND),
    }.get(kind)
    key = name or stage.keys.queue(kind[2:])
    stage.close()
    for use in hostile(word):
        stage = Stage(guarded)
        # no number, for example; `NoPermissionError` is one as well
        with contextlib.suppress(redis.ResponseError):
            stage.thief.execute_command(use[0], key, *use[1:])
        try:
            stage.scheduler.run(stage.commands.expire())
            stage.scheduler.run(stage.commands.take("s1", [(KIND, 500)]))
            assert stage.end(stage.running) == ["ok"]
            assert stage.end(stage.begin("new")) == ["ok"]
        except Exception as error:
            wrong.append(f"{use!r:.80}: {type(error).__name__} {error!s:.150}")
        stage.close()
    if (kind, word) == ("q:meta", "hincrby"):
        wrong = [one for one in wrong if not SAID.search(one)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("scripts")
def test_a_client_can_write_no_text_into_meta_and_send_to_no_plain_queue(guarded: Guarded):
    stage = Stage(guarded)
    for words in (
        ("HSET", stage.keys.queue("meta"), "submitted", "x"),
        ("HDEL", stage.keys.queue("meta"), "submitted"),
        ("DEL", stage.keys.queue("meta")),
        ("ZREM", stage.keys.queue("changed"), KIND),
        ("LPUSH", "celery", "x"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            stage.thief.execute_command(*words)
    stage.close()
