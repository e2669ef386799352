"""The protocol's steps with short names, so that a test shows only what it is about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim, Verdict
from parsync_redis.model.kind import KindLine
from parsync_redis.model.needs import Resources, parse_needs, parse_resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import HowLost, Place
from parsync_redis.model.record import Record, TaskLine
from parsync_redis.model.replies import AfterTake, Took
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import StoredState, Submission, Taken
from parsync_redis.store import Call, Store

NEVER_MS = 10**9


def nth(number: int, life: int = 1, scheduler: str = "s1") -> str:
    """Return the attempt of a take without a salt of its own: the nth take of a life by a
    scheduler.
    """
    return f"{number}@{life}.{scheduler}.0"


def dump(store: Store) -> dict[bytes, Any]:
    """Return every key with its value and whether it expires: equal dumps are equal states.

    A hash or a set is read as such, because a server may serialise the same fields in another order
    after a lookup.
    """
    client: Any = store.client
    keys = sorted(client.scan_iter(count=1000))
    pipe: Any
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
            pipe.ttl(key)
        facts = pipe.execute()
        for key, kind in zip(keys, facts[::2], strict=True):
            {b"hash": pipe.hgetall, b"set": pipe.smembers}.get(kind, pipe.dump)(key)
        values = pipe.execute()
    return {
        key: (value, ttl >= 0) for key, value, ttl in zip(keys, values, facts[1::2], strict=True)
    }


class Driver:
    """Drives one cluster; partition 0 and node n1 unless said otherwise."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.commands = store.commands
        self.keys = store.keys

    def run(self, call: Call[Any]) -> Any:
        """Run a call and return what the script answers."""
        return self.store.run(call)

    def unchanged_by(self, call: Call[Any]) -> Any:
        """Run a call that must change no key, and return what the script answers."""
        before = dump(self.store)
        answer = self.run(call)
        assert dump(self.store) == before, (
            f"{call.script.verb} answered {answer!r}, but changed the state"
        )
        return answer

    def heard(self, do: Callable[[], object], *channels: str) -> list[tuple[str, bytes]]:
        """Return the messages on channels of one server, each with its channel, while something is
        done.
        """
        said = list[tuple[str, bytes]]()
        with self.store.client.pubsub(ignore_subscribe_messages=True) as subscriber:
            subscriber.ssubscribe(*channels)
            for _ in channels:
                subscriber.get_message(timeout=60)  # the server has accepted it
            do()
            self.store.client.spublish(channels[0], b"end")  # comes after all others
            while (message := subscriber.get_message(timeout=60))["data"] != b"end":
                said.append((message["channel"].decode(), message["data"]))
        return said

    def keep_shard(self, shard: int = 0) -> Callable[[], None]:
        """Remember a shard of the queue; return what puts this state back, as a failover that loses
        the writes since then.
        """
        client: Any = self.store.client
        pattern = f"{self.keys.prefix('', shard)}*"
        kept = {key: client.dump(key) for key in client.scan_iter(pattern, count=1000)}

        def lose_writes() -> None:
            client.delete(*client.scan_iter(pattern, count=1000))
            for key, value in kept.items():
                client.restore(key, 0, value)

        return lose_writes

    # -- facts -------------------------------------------------------------------------------------

    def record(self, id: str = "a") -> Record:
        """Return the record of a task."""
        return self.store.records([id])[0]

    def kind_line(self, first: str = "a", *further: str) -> str:
        """Return the line of a kind of which these tasks wait, in the order of the queue."""
        ids = (first, *further)
        return str(KindLine(len(ids), self.line(first).order, self.line(ids[-1]).order))

    def line(self, id: str = "a") -> TaskLine:
        """Return the line of a task."""
        return TaskLine.of(self.record(id).text)

    def status(self, id: str = "a") -> TaskStatus:
        """Return the status of a task."""
        return self.store.statuses([id])[0]

    def message(self, id: str = "a") -> bytes | None:
        """Return the message of a task that has not ended."""
        client: Any = self.store.client
        return client.hget(self.keys.in_shard_of("messages", id), id)

    def state(self, id: str) -> str:
        """Return the state of a task."""
        return self.record(id).state

    def set_options(self, id: str = "a", **options: object) -> None:
        """Write options of a task's line as a test likes them."""
        words = self.record(id).text.split(" ", 5)
        kept = [
            word
            for word in words[4].split(",")
            if word != "-" and word.partition("=")[0] not in options
        ]
        words[4] = ",".join([*kept, *(f"{name}={value}" for name, value in options.items())])
        self.store.client.hset(self.keys.in_shard_of("tasks", id), id, " ".join(words))

    def index(self, kind: str) -> list[str]:
        """Return the tasks in an index of the queue, of all shards, in order; `pending`: of all
        kinds.
        """
        client: Any = self.store.client
        if kind not in ("pending", "later", "dead", "expires"):
            return sorted(
                name.decode() for key in self.keys.queues(kind) for name in client.hkeys(key)
            )
        keys = self.keys.queues(kind) if kind != "pending" else []
        for shard in range(self.keys.shards if kind == "pending" else 0):
            keys += client.scan_iter(self.keys.pending("*", shard), count=1000)
        ordered = [
            (order, id) for key in keys for id, order in client.zrange(key, 0, -1, withscores=True)
        ]
        return [id.decode() for _, id in sorted(ordered)]

    def hash(self, kind: str, p: int = 0) -> dict[str, str]:
        """Return a hash of a partition."""
        return self.store.hash(self.keys.partition(p, kind))

    def bits(self, count: int = 8, p: int = 0) -> str:
        """Return the first free bits of a partition as text."""
        bits = cast(bytes | None, self.store.client.get(self.keys.partition(p, "free"))) or b""
        return "".join(f"{byte:08b}" for byte in bits).ljust(count, "0")[:count]

    def inbox(self, node: str = "n1", p: int = 0) -> list[bytes]:
        """Return a node's messages, the newest first."""
        client: Any = self.store.client
        return list(client.lrange(self.keys.inbox(p, node), 0, -1))

    def word(self, call: Call[list[str]]) -> str:
        """Return the first word of the answer."""
        return self.store.run(call)[0]

    # -- the queue of tasks ------------------------------------------------------------------------

    def submit(
        self,
        id: str,
        options: Mapping[str, Any] | None = None,
        name: str = "work",
        message: bytes = b"message",
        delay_ms: int | None = None,
        after: str = "",
        expiry_ms: int | None = None,
        publication: str = "",
        start_ms: int | None = None,
    ) -> str:
        """Submit one task and return its word."""
        asked = TaskOptions.of(options)
        submission = Submission(
            id, name, message, asked, delay_ms, after, expiry_ms, publication, start_ms
        )
        return self.word(self.commands.submit([submission]))

    def kinds(self, shard: int = 0) -> dict[str, str]:
        """Return the line of each kind of which tasks wait in a shard."""
        return self.store.hash(self.keys.queue("kinds", shard))

    def version(self) -> int:
        """Return the version of the queue: when a kind changed last."""
        return int(self.store.hash(self.keys.queue("meta")).get("version", "0"))

    def demand(self, limit: int = 100, shard: int = 0) -> list[tuple[str, int]]:
        """Return the rows of a take that asks for `limit` tasks of each kind.

        The kinds of delayed tasks come first, then the kinds that wait, in the order of their first
        tasks.
        """
        later = [id for id in self.index("later") if self.keys.shard_of(id) == shard]
        due = [line.kind for record in self.store.records(later) if (line := record.line)]
        lines = sorted(self.kinds(shard).items(), key=lambda pair: int(pair[1].split()[1]))
        return [(kind, limit) for kind in dict.fromkeys([*due, *(kind for kind, _ in lines)])]

    def taking(
        self, scheduler: str = "s1", limit: int = 100, salt: str = "", waits: AfterTake = ""
    ) -> Call[Took]:
        """Return a take of up to `limit` tasks of each kind in the first shard, by a scheduler without a copy of `kinds`."""
        return self._taking(0, scheduler, limit, salt, waits)

    def _taking(
        self, shard: int, scheduler: str, limit: int, salt: str = "", waits: AfterTake = ""
    ) -> Call[Took]:
        return self.commands.take(
            scheduler, self.demand(limit, shard), salt=salt, waits=waits, shard=shard
        )

    def take(self, scheduler: str = "s1", limit: int = 100) -> dict[str, str]:
        """Take up to `limit` tasks of each kind of each shard; return task -> attempt."""
        return {task.id: task.attempt for task in self.take_tasks(scheduler, limit)}

    def take_tasks(self, scheduler: str = "s1", limit: int = 100) -> list[Taken]:
        """Take tasks as `take` does, and return them."""
        shards = range(self.keys.shards)
        return [
            task
            for shard in shards
            for task in self.run(self._taking(shard, scheduler, limit)).tasks
        ]

    def taken(self, id: str = "a", options: Mapping[str, Any] | None = None) -> str:
        """Submit and take one task; return its attempt."""
        assert self.submit(id, options) == "submitted"
        return self.take()[id]

    def confirm(self, place: Place) -> str:
        """Confirm one place and return its word."""
        return self.word(self.commands.confirm([place]))

    def start(self, place: Place) -> str:
        """Start one task and return the first word."""
        return self.store.run(self.commands.start([place]))[0][0]

    def finish(self, place: Place, outcome: str = "succeeded", why: str = "") -> str:
        """Report one outcome and return its word."""
        return self.word(self.commands.finish([(place, outcome, why)]))

    def requeue(
        self,
        place: Place,
        why: str = "its node was lost",
        how: HowLost = "",
        delay_ms: int | None = None,
    ) -> str:
        """Requeue one lost lease and return its word."""
        return self.word(self.commands.requeue([(place, why)], how, [delay_ms]))

    def wait(self, *names: str) -> None:
        """Let schedulers wait that know all kinds and have no seat."""
        for name in names:
            assert (
                self.run(self.commands.take(name, since=str(self.version()), waits="wait")).tasks
                == []
            )

    def unlist(self, id: str) -> None:
        """Take a pending task out of the queue of its kind, so that a test may put the task into another state."""
        kind = self.line(id).kind
        shard = self.keys.shard_of(id)
        self.store.client.zrem(self.keys.pending(kind, shard), id)
        self.run(self.commands.repair_kind(kind, shard))

    def cancel(self, id: str, why: str = "cancelled", how: str = "SIGTERM") -> tuple[str, str]:
        """Cancel one task and return its answer."""
        return self.store.run(self.commands.cancel([id], why, how))[0]

    def offer(self, node: str, offer: str, *names: str) -> Call[int]:
        """Tell submit an offer of a worker that knows tasks of these names; return the call, to be
        repeated.
        """
        tasks = KnownTasks.of(dict.fromkeys(names))
        call = self.commands.offer(node, offer_with(parse_resources(offer), tasks).text, tasks)
        self.run(call)
        return call

    def bring(self, state: str, id: str = "a") -> Place:
        """Bring a new task into a state; return its place, which before `placed` is
        only planned.
        """
        if state == StoredState.GONE:
            return self.place(id)
        assert self.submit(id) == "submitted"
        if state == StoredState.PENDING:
            return self.place(id, nth(1, self.line(id).life))
        place = self.place(id, self.take()[id])
        if state == StoredState.TAKEN:
            return place
        if state == StoredState.PLACED:
            assert self.confirm(place) == "placed"
            return place
        if state == StoredState.CANCELLED:
            assert self.cancel(id) == ("cancelled", "")
            return place
        assert self.start(place) == "ok"
        if state in (StoredState.SUCCEEDED, StoredState.FAILED):
            assert self.finish(place, state) == "ok"
        if state == StoredState.DEAD:
            self.set_options(id, starts=self.commands.max_starts)
            assert self.requeue(place) == "dead"
        return place

    # -- a partition -------------------------------------------------------------------------------

    def node(
        self,
        name: str = "n1",
        slots: int = 2,
        resources: Mapping[str, Any] | None = None,
        labels: Mapping[str, Any] | None = None,
        known_inc: int = 0,
        p: int = 0,
        score: float = 1.0,
    ) -> int:
        """Register a node and return its incarnation."""
        offer = Resources.of(slots, resources, labels).text
        return self.store.run(self.commands.register_node(p, name, known_inc, score, offer))[0]

    def claim(
        self,
        task: str = "a",
        attempt: str = "1@1",
        node: str = "n1",
        slots: Sequence[int] = (0,),
        inc: int = 1,
        needs: str = "",
        p: int = 0,
    ) -> Claim:
        """Return a claim by the present nodes; it asks no amounts unless `needs` says otherwise."""
        record = self.store.nodes(p).get(node)
        epoch = int(self.hash("meta", p).get("epoch", "0"))
        amounts = parse_needs(needs).asked
        first = record.first if record else 0
        return Claim(task, attempt, p, node, tuple(slots), inc, amounts, first, epoch)

    def commit(self, *args: Any, **kwargs: Any) -> Verdict:
        """Commit one claim, given as to `claim`, and return its verdict."""
        claim = self.claim(*args, **kwargs)
        return self.store.run(self.commands.commit(claim.partition, [claim])).verdicts[0]

    def held(self, *args: Any, **kwargs: Any) -> Place:
        """Commit a claim, given as to `claim`, that must win; return its place."""
        claim = self.claim(*args, **kwargs)
        verdict = self.commit(*args, **kwargs)
        assert verdict.word == "held", verdict
        return claim.won(verdict.since_ms, verdict.held)

    def place(
        self, task: str = "a", attempt: str = nth(1), node: str = "n1", slot: int = 0, inc: int = 1
    ) -> Place:
        """Return a place that need not be held."""
        return Place(task, attempt, 0, node, (slot,), inc, 1)

    def lease(self, seat: str = "n1/0", p: int = 0) -> Place:
        """Return the place that holds a slot."""
        return Place.of(self.hash("slots", p)[seat])

    def release(self, place: Place) -> str:
        """Release one lease and return its word."""
        return self.word(self.commands.release(place.partition, [place]))

    def lose(self, node: str = "n1", inc: int = 1, p: int = 0) -> None:
        """Mark a node down, as the leader does when its counter does not move."""
        moved = int(self.hash("alive", p)[node].partition("moved=")[2])
        assert self.run(self.commands.reclaim(p, node, inc, moved))[0] == "down"
