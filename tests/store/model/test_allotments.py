"""Ceilings of several shards are exact: with two leaders, and messages that come late, twice or never.

On a real server, and in the store in memory, which has the same scripts and a clock that the test
moves: there rates are judged too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.kind import Kind
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission, Taken
from parsync_redis.scheduler.leader.allotments import AllotmentDuty
from parsync_redis.store import Call, Store
from parsync_redis.store.reference import MemoryStore

SHARDS = 3
CEILINGS = {"x": "units=3", "one": "units=1", "r": "units=4 rate=4/1000 burst=2", "@t": "slots=2"}
OPTIONS = {
    "work slots=1 under=x": TaskOptions(limits="x"),
    "work slots=1 under=x*2": TaskOptions(limits="x*2"),
    "work slots=1 under=one": TaskOptions(limits="one"),
    "work slots=1 under=one,x": TaskOptions(limits="one,x"),
    "work slots=1 under=r": TaskOptions(limits="r"),
    "work slots=1 for=t": TaskOptions(tenant="t"),
}
KINDS = st.sampled_from([*OPTIONS])
LEADERS = st.sampled_from(["a", "b"])
SHARD = st.integers(0, SHARDS - 1)
FATES = st.sampled_from(["arrives"] * 8 + ["twice", "lost", "reply lost", "late"])
EVENTS = ["", "take", "take", "end", "lead", "lead", "late"]
ROUNDS = 200
"""Rounds in which all waiting tasks must have had their turn; about 1 a task are usual."""


class Network:
    """What a leader sends its calls through: they arrive once, twice, late or never."""

    def __init__(self, machine: "TwoLeaders") -> None:
        self._machine = machine
        self.keys = machine.store.keys
        self.commands = machine.store.commands

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        return [self._machine.deliver(call) for call in calls]


class TwoLeaders(RuleBasedStateMachine):
    """Two schedulers that both believe to lead divide the ceilings of three shards."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self.store = store
        self.is_memory = isinstance(store, MemoryStore)
        if not self.is_memory:
            store.client.flushall()
        self.leaders = {name: AllotmentDuty(Network(self)) for name in "ab"}  # type: ignore[arg-type]
        self.data: Any = None
        self.depth = 0
        self.away: set[int] = set()
        self.late: list[Call[Any]] = []
        self.held: dict[str, Taken] = {}
        self.waiting: set[str] = set()
        self.starts: list[int] = []
        self.count = 0
        self.ceilings = {"x": 3, "one": 1, "r": 4, "@t": 2}
        self.bounds = dict(self.ceilings)
        self.set_policy(CEILINGS)

    def set_policy(self, ceilings: Mapping[str, str]) -> None:
        rows = [(name, f"{text} shards={SHARDS}") for name, text in ceilings.items()]
        for shard in range(SHARDS):
            self.store.run(self.store.commands.set_policy(rows, shard))

    # -- the network -------------------------------------------------------------------------------

    def deliver(self, call: Call[Any]) -> Any:
        """Deliver a leader's call, as the test draws it; other things happen before."""
        fate = "arrives"
        if self.data is not None:
            self.meanwhile()
            fate = self.data.draw(FATES, "the call")
        if fate == "late":
            self.late.append(call)
        if fate in ("lost", "late") or int(call.keys[0].partition(":q")[2][0]) in self.away:
            raise ServerUnreachable("the call was lost")
        reply = self.store.run(call)
        if fate == "twice":
            self.store.run(call)
        self.judge()
        if fate == "reply lost":
            raise ServerUnreachable("the reply was lost")
        return reply

    def meanwhile(self) -> None:
        """Let something happen between two calls of a leader."""
        event = self.data.draw(st.sampled_from(EVENTS), "meanwhile")
        if event == "take":
            self.take(self.data.draw(SHARD))
        elif event == "end":
            self.end(self.data.draw(SHARD))
        elif event == "late":
            self.deliver_late(self.data)
        elif event == "lead" and self.depth < 2:
            self.lead(self.data.draw(LEADERS), self.data)

    # -- what happens ------------------------------------------------------------------------------

    @rule(leader=LEADERS, data=st.data())
    def lead(self, leader, data):
        """Let a leader do a pass; other things happen between its calls."""
        self.data = data
        self.depth += 1
        try:
            self.leaders[leader].work()
        except ServerUnreachable:
            pass
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.data = None

    @rule(leader=LEADERS)
    def lead_undisturbed(self, leader):
        try:
            self.leaders[leader].work()
        except ServerUnreachable:
            return

    @rule(data=st.data())
    def deliver_late(self, data):
        """Let a call arrive that its leader has given up; it may arrive once more."""
        if self.late:
            self.store.run(data.draw(st.sampled_from(self.late), "late"))
            self.judge()

    @rule(shard=SHARD, kind=KINDS, count=st.integers(1, 4))
    def submit(self, shard, kind, count):
        for _ in range(count):
            self.count += 1
            id = next(
                id
                for n in range(99)
                if self.store.keys.shard_of(id := f"t{self.count}.{n}") == shard
            )
            submission = Submission(id, "work", b"", OPTIONS[kind])
            assert self.store.run(self.store.commands.submit([submission])) == ["submitted"]
            self.waiting.add(id)

    @initialize()
    def work_waits_everywhere(self):
        for shard in range(SHARDS):
            for kind in OPTIONS:
                self.submit(shard, kind, 2)

    @rule(shard=SHARD)
    def take(self, shard):
        """Take all that a shard gives."""
        for kind in OPTIONS:
            took = self.store.run(self.store.commands.take("s1", [(kind, 9)], shard=shard))
            for task in took.tasks:
                self.held[task.id] = task
                self.waiting.remove(task.id)
                if "under=r" in kind:
                    self.starts.append(self.now_ms)
        self.judge()

    @rule(shard=SHARD)
    def end(self, shard):
        """End the tasks that a shard holds, and submit as many."""
        for id in sorted(id for id in self.held if self.store.keys.shard_of(id) == shard):
            self.submit(shard, self.held[id].kind.text, 1)
            self.end_task(id)

    def end_task(self, id: str) -> None:
        """Start and finish a task that was taken."""
        task = self.held.pop(id)
        place = Place(task.id, task.attempt, 0, "n1", (0,), 1, 1)
        self.store.run(self.store.commands.start([place]))
        assert self.store.run(self.store.commands.finish([(place, "succeeded", "")])) == ["ok"]

    @rule(data=st.data())
    def undo(self, data):
        """Give a task back whose take is undone."""
        if ids := sorted(id for id, task in self.held.items() if "under=r" not in task.kind.text):
            task = self.held.pop(data.draw(st.sampled_from(ids), "undone"))
            self.waiting.add(task.id)
            row = (task.id, task.attempt, "undo", "")
            self.store.run(self.store.commands.give_back("s1", [row]))

    @rule(shards=st.sampled_from([set(), set(), {0}, {1}, {2}]))
    def go_away_or_come_back(self, shards):
        self.away = set(shards)

    @rule(units=st.integers(0, 5))
    def change_the_policy(self, units):
        """Set the limit x; a lower one counts when a leader has done a pass in all shards."""
        self.set_policy({**CEILINGS, "x": f"units={units}"})
        self.ceilings["x"] = units
        self.bounds["x"] = max(self.bounds["x"], units)
        if not self.away:
            self.settle()
            self.bounds["x"] = max(units, self.sums()["x"])

    @rule(ms=st.integers(1, 700))
    def time_passes(self, ms):
        if self.is_memory:
            self.store.now_ms += ms

    def settle(self) -> None:
        """Let one leader do passes until one was a whole one."""
        for _ in range(2):
            self.leaders["a"].work()

    # -- what must be true -------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.store.now_ms if self.is_memory else 0

    def sums(self) -> dict[str, int]:
        """Return what the holders of all shards hold of each account."""
        sums = dict.fromkeys(self.ceilings, 0)
        for task in self.held.values():
            for account, units in Kind.of(task.kind.text).accounts:
                sums[account] += units
        return sums

    def judge(self) -> None:
        for account, held in self.sums().items():
            assert held <= max(self.ceilings[account], self.bounds[account]), account
        if self.is_memory:
            now = self.now_ms
            for place, at in enumerate(self.starts):
                assert len(self.starts) - place <= 2 + 4 * (now - at) / 1000 + 1e-6

    def teardown(self) -> None:
        """Let one leader lead, with all shards: everything that waits gets its turn."""
        self.away.clear()
        self.data = None
        if self.ceilings["x"] < 3:
            self.change_the_policy(3)
        for _ in range(ROUNDS if self.waiting else 0):
            self.leaders["a"].work()
            ids = sorted(self.held)
            for shard in range(SHARDS):
                self.take(shard)
            for id in ids:
                self.end_task(id)
            self.time_passes(100)
            if not self.waiting:
                break
        if self.is_memory:
            assert not self.waiting
        else:  # the clock of the server does not move for the rate
            assert not [id for id in self.waiting if "under=r" not in self.kind_of(id)]

    def kind_of(self, id: str) -> str:
        return self.store.records([id])[0].line.kind


def run(store: Any, examples: int) -> None:
    run_state_machine_as_test(
        lambda: TwoLeaders(store() if callable(store) else store),  # type: ignore[arg-type]
        settings=settings(max_examples=examples, stateful_step_count=30, phases=[Phase.generate]),
    )


def test_ceilings_are_exact_in_the_reference_store():
    run(lambda: MemoryStore("demo", shards=SHARDS), 2 * settings().max_examples)


@pytest.mark.unaudited
@pytest.mark.one_server(0)
def test_ceilings_are_exact_on_a_server(store: Store):
    store.keys.shards = SHARDS
    run(store, max(1, settings().max_examples // 5))
