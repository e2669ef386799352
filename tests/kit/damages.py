"""The table of damage: for each kind of key what is written into it, and what becomes of tasks
whose truth is gone.

A test fails if a kind of key is missing here (wire/keys.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from parsync_redis.wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS, TYPES, Keys

TASKS: Final = ("running", "waiting", "delayed", "dead")
"""The tasks that there are when the damage is done, by the state that they are in."""

FAMILIES: Final[Mapping[str, Sequence[str]]] = {
    "queue": (*QUEUE_KINDS, "pending", "extra"),
    "partition": (*PARTITION_KINDS, "inbox"),
    "cluster": (*CLUSTER_KINDS, "stats"),
}
KEPT: Final = {
    "queue tasks another order": "the line counts: the index of its kind is made anew from it",
    "queue meta other apps": "clients read the apps again, and go by this value",
    "queue extra garbage": "people read it",
    "partition meta an earlier version, "
    "epoch and incarnation": "version and epoch are as good as any; inc is raised",
    "partition notes a ghost": "a drain outlives the record of its node",
    "cluster dealt elsewhere": "it counts when the node registers again; what it held is recovered as a lost node's",
    "cluster quarantine garbage": "people read it",
    "cluster losses garbage": "people read it",
    "cluster times garbage": "nothing rests on it",
    "cluster bookings garbage": "nobody obeys a field that no script writes; the next booking writes the key anew",
    "cluster streaks garbage": "nobody obeys a line that no script writes; the next report of the name drops it",
    "cluster stats garbage": "people read it",
    "cluster policy garbage": "people are told, and apply the policy again; the shards keep theirs",
    "queue policy a ghost": "no document contradicts it",
    "queue choices no JSON": "people read it",
    "queue choices_1 no JSON": "people read it",
    "queue events the last number": "people read it; the next event begins the stream anew",
}
"""Wrong values that stay, and the reason for each."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster in the middle of its work: its server, its keys, its tasks by state.

    p: the partition of node n1.
    """

    client: Any
    keys: Keys
    ids: Mapping[str, str]
    p: int
    scheduler: str

    def key(self, family: str, kind: str) -> str:
        """Return the key of a kind that the damage is done to."""
        waiting = (
            self.client.hget(self.keys.queue("tasks"), self.ids["waiting"])
            .decode()
            .split(" ", 5)[5]
        )
        own = {
            "pending": self.keys.pending(waiting),
            "extra": self.keys.extra(self.ids["dead"]),
            "inbox": self.keys.inbox(self.p, "n1"),
            "stats": self.keys.stats(self.scheduler),
        }
        if kind in own:
            return own[kind]
        makers: dict[str, Callable[[str], str]] = {
            "queue": self.keys.queue,
            "partition": lambda name: self.keys.partition(self.p, name),
            "cluster": self.keys.shared,
        }
        return makers[family](kind)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage: what is done to a key, and how tasks end that cannot be repaired.

    kept: why the wrong value stays: no process can tell the value from a right one, or nothing
    depends on it.
    """

    family: str
    kind: str
    name: str
    do: Callable[[Scene, str], object]
    becomes: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False

    def __str__(self) -> str:
        return f"{self.family}-{self.kind}-{self.name}".replace(" ", "-")


def _delete(scene: Scene, key: str) -> None:
    scene.client.delete(key)


def _other_type(scene: Scene, key: str) -> None:
    """Replace a key at once: between two commands a process might write it again."""
    kind = TYPES[key.partition("}:")[2].partition(":")[0]]
    with scene.client.pipeline(transaction=True) as pipe:
        pipe.delete(key)
        pipe.set(key, "x") if kind != "string" else pipe.lpush(key, "x")
        pipe.execute()


def _hset(field: str, value: str) -> Callable[[Scene, str], object]:
    """Return what writes a field of a hash; {running} and the like are the tasks, {p} the
    partition.
    """

    def do(scene: Scene, key: str) -> None:
        fill = {**scene.ids, "p": scene.p}
        scene.client.hset(key, field.format(**fill), value.format(**fill))

    return do


def _zadd(member: str, score: float) -> Callable[[Scene, str], object]:
    return lambda scene, key: scene.client.zadd(key, {member.format(**scene.ids): score})


def _every(change: Callable[[str], str]) -> Callable[[Scene, str], object]:
    """Return what changes the value of every field of a hash."""

    def do(scene: Scene, key: str) -> None:
        for name, value in scene.client.hgetall(key).items():
            scene.client.hset(key, name, change(value.decode()))

    return do


def _scores(score: float) -> Callable[[Scene, str], object]:
    def do(scene: Scene, key: str) -> None:
        for at, (name, _) in enumerate(scene.client.zrange(key, 0, -1, withscores=True)):
            scene.client.zadd(key, {name: score + at})

    return do


def _reorder(scene: Scene, key: str) -> None:
    """Change the order of the waiting task in its queue, but not in its line."""
    words = scene.client.hget(key, scene.ids["waiting"]).decode().split(" ")
    scene.client.hset(
        key, scene.ids["waiting"], " ".join([words[0], "4521795630000009", *words[2:]])
    )


def _flip(scene: Scene, key: str) -> None:
    for bit in range(12):
        scene.client.setbit(key, bit, 1 - scene.client.getbit(key, bit))


def _held_twice(scene: Scene, key: str) -> None:
    """Write the lease of the running task to a slot too that the lease does not name."""
    seat = _seat(scene, key)
    scene.client.hset(key, "n1/1" if seat == "n1/0" else "n1/0", scene.client.hget(key, seat))


def _seat(scene: Scene, key: str) -> str:
    """Return the slot of the running task."""
    leases = scene.client.hgetall(key)
    (seat,) = [
        seat for seat, text in leases.items() if text.startswith(scene.ids["running"].encode())
    ]
    return str(seat.decode())


def _ghost_beside(scene: Scene, key: str) -> None:
    """Write a lease of no task to the slot that is free."""
    _ghost_at(scene, key, "n1/1" if _seat(scene, key) == "n1/0" else "n1/0")


def _ghost_over(scene: Scene, key: str) -> None:
    """Write a lease of no task over that of the running task."""
    _ghost_at(scene, key, _seat(scene, key))


def _ghost_at(scene: Scene, key: str, seat: str) -> None:
    scene.client.hset(key, seat, f"ghost 1@1.s1.0 p{scene.p} {seat} inc=1 since=1")


def _one_lost(scene: Scene, key: str) -> None:
    scene.client.hdel(key, _seat(scene, key))


def _elsewhere(scene: Scene, key: str) -> None:
    """Write the place of the running task on another node."""
    text = scene.client.hget(key, scene.ids["running"]).decode()
    scene.client.hset(key, scene.ids["running"], text.replace(" n1/", " n2/"))


NO_LINE: Final = {"delayed": "failed", "dead": "failed"}
"""The states of tasks that have lost their lines.

A waiting task is made anew from its queue, a run from its place. Nothing tells the needs of any
other task.
"""

NO_MESSAGE: Final = {"waiting": "failed", "delayed": "failed", "dead": "failed"}
"""A task without a message cannot run; what runs already needs none."""

GONE: Final[Mapping[str, Mapping[str, str]]] = {"tasks": NO_LINE, "messages": NO_MESSAGE}
GHOST: Final = "ghost 1@1.s1.0 p{p} n1/0 inc=1 since=1"

WRONG: Final[Mapping[tuple[str, str], Mapping[str, Callable[[Scene, str], object]]]] = {
    ("queue", "meta"): {
        "no number of submissions": _hset("submitted", "x"),
        "fewer submissions": _hset("submitted", "1"),
        "more submissions than there are numbers": _hset("submitted", "999999999999999"),
        "an early version": _hset("version", "5"),
        "a late floor": _hset("floor", "999999999999999"),
        "other shards": _hset("shards", "7"),
        "other apps": _hset("apps", "5.x"),
    },
    ("queue", "kinds"): {
        "a wrong count": _every(lambda line: "9 " + line.split(" ", 1)[1]),
        "a ghost": _hset("ghost slots=1", "3 9 9"),
    },
    ("queue", "changed"): {"late versions": _scores(9e14), "a ghost": _zadd("ghost slots=1", 9e14)},
    ("queue", "later"): {"never due": _scores(9e14), "a ghost": _zadd("ghost", 9e14)},
    ("queue", "tasks"): {
        "another order": _reorder,
        "a ghost": _hset("ghost", "0@1 8121795630000001 1 1 - work slots=1"),
    },
    ("queue", "messages"): {"a ghost": _hset("ghost", "{{}}")},
    ("queue", "taken"): {
        "a ghost": _hset("ghost", "1@1.s9.1"),
        "what runs": _hset("{running}", "1@1.s9.1"),
    },
    ("queue", "running"): {"a ghost": _hset("ghost", GHOST), "elsewhere": _elsewhere},
    ("queue", "ended"): {"garbage": _hset("ghost", "x")},
    ("queue", "ended_1"): {
        "garbage": _hset("ghost", "x"),
        "what runs": _hset("{running}", "failed 1\n\n\n"),
    },
    ("queue", "ended_2"): {"garbage": _hset("ghost", "x")},
    ("queue", "outbox"): {"garbage": lambda scene, key: scene.client.lpush(key, "x")},
    ("queue", "dead"): {"what waits": _zadd("{waiting}", 5), "a ghost": _zadd("ghost", 5)},
    ("queue", "expires"): {"never": _zadd("{waiting}", 9e14)},
    ("queue", "shapes"): {
        "a ghost": _hset("ghost", "slots=99 gpu=99"),
        "another offer": _hset("n1", "slots=99"),
    },
    ("queue", "choices"): {"no JSON": _hset("{running}", "x")},
    ("queue", "choices_1"): {"no JSON": _hset("{running}", "x")},
    ("queue", "feasible"): {
        "a wrong answer": _hset("tests.kit.apps.marks.where slots=9999", "yes")
    },
    ("queue", "names"): {
        "other names": _every(lambda text: "\nwork \n"),
        "a ghost": _hset("abc", "\nwork \n"),
    },
    ("queue", "apps"): {"a ghost": _zadd("abc", 99)},
    ("queue", "accounts"): {
        "garbage": _hset("stripe", "junk"),
        "a ghost": _hset("ghost", "n=3 units=3"),
    },
    ("queue", "policy"): {"a ghost": _hset("ghost", "units=1")},
    ("queue", "events"): {
        "the last number": lambda scene, key: scene.client.xadd(
            key, {"event": "down"}, id=f"{2**64 - 1}-{2**64 - 1}"
        )
    },
    ("queue", "pending"): {"a ghost": _zadd("ghost", 5), "another order": _zadd("{waiting}", 7)},
    ("queue", "extra"): {"garbage": _hset("ended_ms", "x")},
    ("partition", "meta"): {
        "wrong counts": lambda scene, key: scene.client.hset(
            key, mapping={"free": 99, "slots": 99}
        ),
        "an earlier version, epoch and incarnation": lambda scene, key: scene.client.hset(
            key, mapping={"version": 1, "epoch": 1, "inc": 0}
        ),
    },
    ("partition", "slots"): {
        "a slot held twice": _held_twice,
        "a lost lease": _one_lost,
        "a ghost": _ghost_beside,
        "a ghost over a lease": _ghost_over,
    },
    ("partition", "free"): {
        "other bits": _flip,
        "bits of no node": lambda scene, key: scene.client.setbit(key, 5000, 1),
    },
    ("partition", "left"): {
        "other amounts": _hset("n1", "gpu=99"),
        "a ghost": _hset("ghost", "gpu=1"),
    },
    ("partition", "changed"): {"late versions": _scores(9e14), "a ghost": _zadd("ghost", 1)},
    ("partition", "nodes"): {
        "another offer": _every(lambda text: text.replace(" gpu=4", " gpu=9")),
        "another state": _every(lambda text: text.replace("up ", "leaving ", 1)),
        "a ghost": _hset("ghost", "up inc=1 drain=0 first=500 span=2 score=1.0 slots=2"),
    },
    ("partition", "alive"): {
        "another incarnation": _hset("n1", "inc=99 moved=1"),
        "a ghost": _hset("ghost", "inc=1 moved=1"),
    },
    ("partition", "lost"): {"what lives": lambda scene, key: scene.client.sadd(key, "n1", "ghost")},
    ("partition", "notes"): {"a ghost": _hset("ghost", "no deadline")},
    ("partition", "events"): {},
    ("partition", "inbox"): {"garbage": lambda scene, key: scene.client.lpush(key, "x")},
    ("cluster", "config"): {
        "another lease": _hset("lease_ms", "7"),
        "other shards": _hset("shards", "x"),
    },
    ("cluster", "schedulers"): {"a ghost": _hset("ghost", "5")},
    ("cluster", "leader"): {"a ghost": _hset("holder", "ghost moved=5")},
    ("cluster", "dealt"): {"elsewhere": _hset("node:n1", "p7 slots=2 score=1 ")},
    ("cluster", "quarantine"): {"garbage": _zadd("x", 5)},
    ("cluster", "losses"): {"garbage": _hset("x", "y")},
    ("cluster", "times"): {"garbage": _hset("x", "y")},
    ("cluster", "bookings"): {"garbage": _hset("n1", "x")},
    ("cluster", "streaks"): {"garbage": _hset("x", "y")},
    ("cluster", "shares"): {"garbage": _hset("acme", "y")},
    ("cluster", "policy"): {"garbage": _hset("text", "x[")},
    ("cluster", "events"): {},
    ("cluster", "stats"): {"garbage": _hset("x", "y")},
}
"""Values that are wrong, most of them well formed."""


def all_damages() -> list[Damage]:
    """Return every damage: each kind of key deleted, of another type, and with each of its wrong
    values.
    """
    found = []
    for family, kinds in FAMILIES.items():
        for kind in kinds:
            gone = GONE.get(kind, {})
            found.append(Damage(family, kind, "deleted", _delete, gone))
            found.append(Damage(family, kind, "of another type", _other_type, gone))
            for name, do in WRONG[family, kind].items():
                found.append(Damage(family, kind, name, do, kept=f"{family} {kind} {name}" in KEPT))
    return found
