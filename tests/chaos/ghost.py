"""The ghost: an observer that sees each executed request and the whole state after it, and checks the promises.

The ghost is no part of the system: it has no lease, loses nothing, and forgets nothing. A broken
promise is a `Violation`; its number is that of docs/invariants.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from parsync_redis.model.order import MAX_ORDER
from parsync_redis.model.task import FINAL
from parsync_redis.store.reads.tasks import GENERATIONS
from parsync_redis.store.scripts.calls import Call
from parsync_redis.worker.node.runs import Run

from .copies import copy_facts, named_states
from .primaries import tag_of
from .processes import LEASE_S, AgentProcess
from .state import State, TaskNow, read_state
from .wire import MAX_STARTS, RETENTION_S

if TYPE_CHECKING:
    from .world import Process, World

QUIET = frozenset(
    (
        "renew",
        "read_partition",
        "renew_scheduler",
        "set_reason",
        "offer",
        "deal_node",
        "ring",
        "read_tasks",
    )
)
"""Verbs that change nothing that a promise speaks of."""


class Violation(BaseException):
    """A promise was broken; no BaseException is swallowed by what the product catches."""

    def __init__(self, promise: int, fact: str) -> None:
        super().__init__(f"promise {promise}: {fact}")
        self.promise = promise
        self.fact = fact


@dataclass(slots=True)
class TaskGhost:
    """The record of one life of a task: from its submission to the purge of its record."""

    acknowledged: bool = False
    attempt: str = ""
    final: str = ""
    cancelled: bool = False
    starts: int = 0
    started: dict[str, str] = field(default_factory=dict)
    begun: dict[str, tuple[AgentProcess, int]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)


class Ghost:
    """The events so far."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: dict[str, TaskGhost] = {}
        self.attempts: set[tuple[str, str]] = set()
        self.lives: dict[str, TaskGhost] = {}  # by the number of the submission
        self.alive_s: dict[str, float] = {}
        self.lost: set[tuple[str, int]] = set()  # incarnations that were given up or superseded
        self.coverage: Counter[str] = Counter()
        self.state = State()
        # of each version and epoch that was ever seen, what it was the number of
        self.named: dict[str, str] = {}
        # of each lease that was ever seen
        self.slots: dict[tuple[str, str, str, int], tuple[int, ...]] = {}
        self.incs: dict[tuple[str, str, str, int], int] = {}  # the incarnation of each
        self.members: dict[str, int] = {}  # counters of the schedulers that are members
        self.counted: dict[str, int] = {}  # the highest counter that each name ever had
        # how often an operator or the leader has said something of a node
        self.overs: Counter[str] = Counter()

    def check(self, fact: bool, promise: int, text: str) -> None:
        """Raise Violation unless `fact` holds, which must be even after the server has
        lost writes.
        """
        if not fact:
            raise Violation(promise, text)

    def history(self, fact: bool, promise: int, text: str, id: str | None = None) -> None:
        """Raise Violation unless `fact` holds or a server has lost writes that it may rest on.

        id: of the task in whose shard alone it rests; None if it may rest on anything.
        """
        self.check(fact or self._lost_writes(id), promise, text)

    def _lost_writes(self, id: str | None = None) -> bool:
        """Return whether a server has lost acknowledged writes: what rests on them is promised no
        more.
        """
        primaries = self.world.primaries
        return bool(primaries.rolled_back) if id is None else self._tag(id) in primaries.rolled_back

    def _tag(self, id: str) -> str:
        return f"q{self.world.primaries.keys.shard_of(id)}"

    # -- requests ----------------------------------------------------------------------------------

    def executed(
        self, process: Process, calls: Sequence[Call[Any]], replies: Sequence[Any]
    ) -> None:
        """Check requests that were executed, in this order."""
        dirty = False
        for call, reply in zip(calls, replies, strict=True):
            verb = call.script.verb
            self.check(not isinstance(reply, Exception), 9, f"{verb} answers an error: {reply}")
            self.world.trace("executed", process, verb, call.args, reply)
            if see := getattr(self, f"_{verb}", None):
                see(
                    process, call, call.script.header.named([text(arg) for arg in call.args]), reply
                )
            if verb not in ("read_partition", "deal_node", "set_reason", "take"):
                self._count(verb, call, reply)
            dirty = dirty or verb not in QUIET
        if dirty:
            self.look()

    def _count(self, verb: str, call: Call[Any], reply: Any) -> None:
        if verb == "commit":
            self.coverage.update(f"commit {verdict.word}" for verdict in call.read(reply).verdicts)
        elif verb == "release":
            self.coverage.update(f"release {word}" for word in call.read(reply))
        elif verb in ("submit", "confirm", "give_back", "finish", "requeue"):
            self.coverage.update(f"{verb} {word}" for word in call.read(reply))
        elif verb == "start":
            self.coverage.update(f"start {word}" for word, _ in call.read(reply))
        elif verb in ("reclaim", "renew", "cancel"):
            self.coverage[f"{verb} {text(reply[0])}"] += 1
        else:
            self.coverage[f"{verb} {text(reply)}" if isinstance(reply, bytes) else verb] += 1

    def _submit(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for row, word in zip(args.rows, call.read(reply), strict=True):
            if word == "submitted":
                known = self.tasks.get(row.id)
                anew = known is None or ("pub=" in row.options and bool(known.final))
                self.history(
                    anew, 1, f"task {row.id} was submitted a second time: an id is one task", row.id
                )
                self.tasks[row.id] = TaskGhost()

    def _take(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        took = call.read(reply)
        self.check(not took.failed, 9, f"records are damaged: {took.failed}")
        for id, attempt in ((task.id, task.attempt) for task in took.tasks):
            self.coverage["take"] += 1
            known = (id, attempt) in self.attempts
            self.history(not known, 4, f"attempt {attempt} of task {id} was given out twice", id)
            self.attempts.add((id, attempt))
            task = self.of(id)
            life = self._tag(id) + attempt.partition("@")[2].partition(".")[0]
            task.attempt = attempt
            mine = self.lives.setdefault(life, task) is task
            self.history(mine, 4, f"task {id} has the life {life} of another one", id)

    def _start(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        self._in_order([row.id for row in args.rows], [word for word, _ in call.read(reply)])
        may_run = sum(word in ("ok", "yours") for word, _ in call.read(reply))
        self.check(
            may_run <= int(args.most), 2, f"{may_run} tasks may run in {args.most} idle slots"
        )
        for row, (word, _) in zip(args.rows, call.read(reply), strict=True):
            if word != "ok":
                continue
            id = row.id
            attempt = row.attempt
            task = self.of(id)
            stale = f"a stale attempt started: {attempt} of {id}, which is at {task.attempt}"
            self.history(attempt == task.attempt, 4, stale, id)
            self.history(
                attempt not in task.started,
                4,
                f"attempt {attempt} of task {id} was started twice",
                id,
            )
            self.history(
                not task.cancelled, 4, f"task {id} was started after its cancel was accepted", id
            )
            self.history(not task.final, 4, f"task {id} was started when it was {task.final}", id)
            task.started[attempt] = row.text
            task.starts += 1

    def _in_order(self, ids: Sequence[str], words: Sequence[str]) -> None:
        """Check that of tasks that ask together to start, those that come first in the queue do."""
        began = [self._order(id) for id, word in zip(ids, words, strict=True) if word == "ok"]
        waiting = [self._order(id) for id, word in zip(ids, words, strict=True) if word == "wait"]
        self.check(
            max(began, default=0) <= min(waiting, default=MAX_ORDER),
            0,
            f"{words}: a later task of {ids} starts first",
        )

    def _order(self, id: str) -> int:
        """Return the place of a task in the order of the queue; that of one that runs or is unknown
        proves nothing.
        """
        return self.state.orders.get(id, 0)

    def _give_back(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for row, word in zip(args.rows, call.read(reply), strict=True):
            if word == "pending" and row.attempt and (task := self.tasks.get(row.id)):
                stale = f"a stale attempt put task {row.id} back: {row.attempt}, not {task.attempt}"
                self.history(row.attempt == task.attempt, 4, stale, row.id)
                if row.how == "undo":
                    self.coverage["undone"] += 1
                    undone = f"attempt {row.attempt} of task {row.id} was undone, which has started"
                    self.history(row.attempt not in task.started, 4, undone, row.id)
                    number, _, others = row.attempt.partition("@")
                    task.attempt = f"{int(number) - 1}@{others}"

    def _expire(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for id in call.read(reply):
            self.coverage["expired"] += 1
            known = self.state.tasks.get(id)
            self.check(
                known is None or not known.place, 4, f"task {id} expired when it was {known}"
            )

    def _rotate(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        """Forget the oldest generation as the server does, all of which has been kept for its
        retention.
        """
        if not call.read(reply):
            return
        clock = self.world.clock
        shard = int(tag_of(call.keys[0])[1:])
        for id, end in (
            self.state.shards[shard].hashes[GENERATIONS[-1]].items() if self.state.shards else ()
        ):
            self.coverage["forgotten"] += 1
            age_s = (clock.wall_ms() - int(end.split()[1])) / 1000
            self.check(
                clock.was_set_back or age_s >= RETENTION_S,
                1,
                f"task {id} is forgotten {age_s} s after its end",
            )
            self.tasks.pop(id, None)
            # its rare fields expire half a retention earlier, by the server's real clock, which
            # nobody moves
            self.world.client.delete(self.world.primaries.keys.extra(id))

    def _set_node(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        self.overs[args.node] += 1
        partition = self.state.partitions[int(tag_of(call.keys[0])[1:])]
        if (node := partition.nodes.get(args.node)) is None or text(reply[0]) != "ok":
            return
        self.coverage[f"set_node {args.word}"] += 1
        mine = args.inc in ("", str(node.inc))
        self.check(
            mine,
            9,
            f"{args.word} was meant for incarnation {args.inc} of {node.name}, which is at "
            f"{node.inc}",
        )
        if args.word == "over" and node.drain == 1:
            terms = partition.notes.get(node.name, "")
            ends = text(reply[2]) == "2"
            self.check(
                args.note == terms or not ends,
                9,
                f"a drain of {args.note!r} ended that of {terms!r}: {node.name}",
            )

    def _finish(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for row, word in zip(args.rows, call.read(reply), strict=True):
            if word not in ("ok", "again"):
                continue
            task = self.of(row.id)
            mine = bool(task.attempt) and task.started.get(task.attempt) == row.text
            self.history(
                mine, 4, f"the outcome {row.outcome} of a stale attempt counted: {row.text}", row.id
            )
            if word == "again":
                task.starts = 0
                task.ended[task.attempt] = "again"  # the task has a successor

    def _requeue(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for row, word in zip(args.rows, call.read(reply), strict=True):
            id = row.id
            attempt = row.attempt
            task = self.tasks.get(id)
            if task is None or word == "none":
                continue
            stale = f"a stale attempt put task {id} back: {attempt}, not {task.attempt}"
            self.history(attempt == task.attempt, 4, stale, id)
            if word == "dead":
                self.history(
                    task.starts >= MAX_STARTS,
                    4,
                    f"task {id} is dead after {task.starts} starts",
                    id,
                )

    def _cancel(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        for row, (word, _) in zip(args.rows, call.read(reply), strict=True):
            if word in ("cancelled", "asked"):
                self.of(row.id).cancelled = True

    def _renew(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        if text(reply[0]) == "ok":
            self.alive_s[f"{args.node} {args.inc}"] = self.world.clock.now_s

    def _register_node(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        self.alive_s[f"{args.node} {int(reply[0])}"] = self.world.clock.now_s

    def _reclaim(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        if text(reply[0]) == "down":
            self.lost.add((args.node, int(args.inc)))
            if not isinstance(process, AgentProcess):
                p = self.world.primaries.keys.number_of(call.keys[0])
                self._judged(process, f"{args.node} {args.inc}", f"node {args.node}", [f"p{p}"])

    def _renew_scheduler(self, process: Process, call: Call[Any], args: Any, reply: Any) -> None:
        name = args.lost.partition(" ")[0]
        counters = call.read(reply).counters
        for member, counter in counters.items():
            anew = member not in self.members
            before = self.counted.get(member, 0)
            self.history(
                not anew or counter > before,
                8,
                f"{member} is back with {counter}, a counter of its earlier life",
            )
            self.counted[member] = max(before, counter)
        self.members = dict(counters)
        if name in self.alive_s and name not in counters:
            self._judged(process, name, f"scheduler {name}", [""])
            self.alive_s.pop(name, None)
            self.coverage["schedulers lost"] += 1
        if args.stay:
            self.alive_s[args.scheduler] = self.world.clock.now_s
        else:  # the scheduler has left
            self.alive_s.pop(args.scheduler, None)

    def _judged(self, process: Process, holder: str, what: str, tags: list[str]) -> None:
        """Check the judgement that a lease has lapsed.

        The holder must have been silent for a whole lease, and its server up. The judge does not
        see a restart of the server in the middle of a leader's pass, or while a request is on the
        way.
        """
        now_s = self.world.clock.now_s + 1e-6
        silent_s = now_s - self.alive_s.get(holder, float("-inf"))
        self.history(
            silent_s >= LEASE_S, 8, f"{what} was given up after {silent_s:.1f} s of silence"
        )
        primaries = self.world.primaries
        restarted_s = max(primaries.restarted_s[primaries.owners[tag]] for tag in tags)
        unseen = restarted_s >= getattr(process, "began_s", 0.0)
        self.history(
            unseen or now_s - restarted_s >= LEASE_S,
            7,
            f"{what} was given up just after the server restarted",
        )

    def of(self, id: str) -> TaskGhost:
        """Return the record of a task's present life."""
        if self._lost_writes(id):
            return self.tasks.get(id, TaskGhost())
        self.check(
            id in self.tasks, 1, f"task {id} is there, but was never submitted or is long purged"
        )
        return self.tasks[id]

    # -- functions ---------------------------------------------------------------------------------

    def began(self, process: Any, run: Run) -> None:
        """Check a task's function that begins in a process."""
        place = run.place
        self.coverage["functions begun"] += 1
        task = self.of(place.task)
        attempt = f"attempt {place.attempt} of task {place.task}"
        self.check(
            place.inc == process.agent.node.inc,
            2,
            f"{attempt} runs in a process that is not of its incarnation",
        )
        self.history(place.attempt not in task.begun, 4, f"the function of {attempt} began twice")
        for before, (where, inc) in task.begun.items():
            excused = (
                where.dead
                or (where.node, inc) in self.lost
                or task.ended.get(before) in ("again", "lost")
            )
            self.history(excused, 5, f"{attempt} runs, but {before} did, and its node was not lost")
        task.begun[place.attempt] = (process, place.inc)
        self.look(True)

    def ended(self, run: Run, outcome: str) -> None:
        """Record that a function ended."""
        self.coverage[f"function {outcome}"] += 1
        # the record of the task may be purged while a run that counts no more goes on
        if task := self.tasks.get(run.place.task):
            task.ended[run.place.attempt] = outcome

    def over_since(self, node: str) -> int | None:
        """Return how often a node was told that its drain's deadline is over; None if the deadline is not over."""
        found = self.state.nodes.get(node)
        is_over = found and (found.drain == 2 or (found.notice and found.notice.over))
        return self.overs[node] if is_over else None

    def renewed(self, process: AgentProcess, going: Sequence[Run], over: int | None) -> None:
        """Check a node that has renewed: the runs from before a deadline that is over must have ended."""
        if over is not None and over == self.over_since(process.node):
            self.coverage["renewals of a drain that is over"] += 1
            left = [run.place.task for run in going if not run.outcome and not run.ending]
            self.check(not left, 0, f"the drain of {process.node} is over, but {left} run on")

    # -- the state ---------------------------------------------------------------------------------

    def look(self, always: bool = False) -> None:
        """Read the whole state and check what must hold at any moment."""
        try:
            self._look(always)
        # otherwise the product would take the error for trouble of its own
        except Exception as error:
            raise Violation(3, f"the state is beyond reading: {error!r}") from error

    def _look(self, always: bool) -> None:
        state = read_state(self.world.wire.client, self.tasks, self.state, self.world.config.shards)
        if state is self.state and not always:
            return
        before = self.state
        self.state = state
        for lease in state.leases.values():
            if lease.leads:
                place = lease.place
                key = place.task, place.attempt, place.node, place.slot
                self.slots[key] = place.slots
                inc = self.incs.setdefault(key, place.inc)  # release compares it, but need not
                self.history(
                    inc == place.inc,
                    4,
                    f"{key} was placed under incarnation {inc}, and again under {place.inc}",
                )
        for promise, fact in state.facts(not self._lost_writes()):
            self.check(False, promise, fact)
        for id, (attempt, successor) in before.published.items():
            now = state.tasks.get(id)
            over = now is None or (now.state, now.attempt) != ("running", attempt)
            kept = over or id in state.published
            self.history(
                kept, 1, f"a run replaced {successor!r}, which others published of task {id}", id
            )
        for id, task in self.tasks.items():
            self._look_at(id, task, state.tasks.get(id))
        for process in self.world.agents:
            self._look_into(process, state)
        for number, named in named_states(state):
            known = self.named.setdefault(number, named)
            self.check(
                known == named or self.world.clock.was_set_back,
                1,
                f"{number} is of {named}, and was of {known}",
            )
        for scheduler in self.world.schedulers:
            if scheduler.knows_server and not any(who is scheduler for who, _ in self.world.stack):
                for fact in copy_facts(scheduler.scheduler.core, state, scheduler.knows):
                    self.check(False, 1, f"{scheduler.name}: {fact}")

    def _look_at(self, id: str, task: TaskGhost, known: TaskNow | None) -> None:
        now = known.state if known else ""
        self.history(bool(now), 1, f"nothing is known of task {id} any more", id)
        self.history(task.final in ("", now), 4, f"task {id} was {task.final} and is {now}", id)
        if now in FINAL and not task.final:
            task.final = now
            self.coverage[f"final {now}"] += 1
        if known and known.attempt:  # not that of a task that was cancelled before it had a place
            new, old = (int(a.partition("@")[0] or 0) for a in (known.attempt, task.attempt))
            self.history(
                new >= old,
                4,
                f"task {id} went back from attempt {task.attempt} to {known.attempt}",
                id,
            )

    def _look_into(self, process: Any, state: State) -> None:
        """Check the functions that run in a node's present process: one in each slot, in a slot of the run's lease."""
        node = state.nodes.get(process.node)
        inc = process.agent.node.inc
        if node is None or node.inc != inc or node.state == "down":
            if node is not None:
                self.lost.add((process.node, inc))
            return
        seats: dict[int, str] = {}
        for run in process.agent.node.runs.going():
            place = run.place
            lease = state.leases.get((place.node, place.slot))
            mine = lease is not None and lease.place == place
            if place.inc == inc and (process.node, inc) not in self.lost:
                self.history(
                    mine,
                    2,
                    f"task {place.task} runs on {place.node}/{place.slot}, whose lease is not its "
                    "own",
                )
                known = state.tasks.get(place.task)
                mine = known is not None and (known.state, known.place) == ("running", place)
                self.history(
                    mine, 5, f"task {place.task} was taken from its run, but its node is well"
                )
            slots = self.slots.get(
                (place.task, place.attempt, place.node, place.slot), (place.slot,)
            )
            for slot in run.given_slots or slots:
                self.check(
                    slot not in seats,
                    2,
                    f"two functions on {place.node}/{slot}: {place.task}, {seats.get(slot)}",
                )
                seats[slot] = place.task


def text(value: Any) -> str:
    """Return an argument or a reply as text; bytes of a message may be anything."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
