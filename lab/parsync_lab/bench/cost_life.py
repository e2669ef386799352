"""The life of tasks, verb by verb, through parsync's own calls: what `bench cost` measures.

Only this module knows how a verb is called: a changed signature needs one edit here.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim
from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission, Taken
from parsync_redis.store.store import Store

from .load import BENCH_TASK
from .ours import set_up
from .parameters import BenchParameters
from .standins import batches

VERBS: Final = ("submit", "take", "commit", "start", "finish", "release")
"""The verbs of a life, without `confirm`: a task that its worker starts soon needs none."""

WITH_CONFIRM: Final = ("submit", "take", "commit", "confirm", "start", "finish", "release")

COST_NODES: Final = 100
COST_NODE_SLOTS: Final = 100
MESSAGE: Final = b"m" * 700
"""A message as long as that of a small Celery task."""

_ATTEMPT_SALT: Final = ".482913"
_SCHEDULER: Final = "s1"


@dataclass(frozen=True, slots=True)
class CostCase:
    """A case: the options of its tasks, and each node's resources besides its slots.

    ceilings: of the accounts to which the tasks count. tenants: each task has a tenant of its own.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    ceilings: Sequence[tuple[str, str]] = ()
    tenants: bool = False


COST_CASES: Final[Mapping[str, CostCase]] = {
    "plain": CostCase(),
    "needs": CostCase(
        {"resources": {"mem": 4, "gpu": 1}, "require": {"zone": "a"}},
        {"mem": 4 * COST_NODE_SLOTS, "gpu": COST_NODE_SLOTS},
        {"zone": "a"},
    ),
    "limit": CostCase(
        {"tenant": "acme", "limits": ["stripe"]},
        ceilings=[("stripe", "units=1000000"), ("@acme", "slots=1000000")],
    ),
    "tenants": CostCase(tenants=True),
    "warm": CostCase({"prefer": ["warm:llama"]}),
}
"""The cases.

The tasks have no needs, or two amounts and a label, or a tenant and a limit, or each has another
tenant, or they prefer the warm set of a key.
"""


class Life:
    """Takes tasks of one case through their life in one partition: `begin`, then `step` per verb.

    shards: of the queue, 0 is the usual number.
    """

    def __init__(
        self, store: Store, case: CostCase, shards: int = 0, nodes: int = COST_NODES
    ) -> None:
        self.store = store
        self.commands = store.commands
        self._options = TaskOptions.of(case.options)
        self._dice = random.Random(1)
        self._tenants = case.tenants
        self._submissions: list[Submission] = []
        self._taken: list[Taken] = []
        self._places: list[Place] = []
        set_up(store, BenchParameters(schedulers=1, partitions=1, shards=shards))
        self.shards = store.keys.shards
        if case.ceilings:
            store.run_all(
                [self.commands.set_policy(case.ceilings, shard) for shard in range(self.shards)]
            )
        self._since = ["0"] * self.shards
        self._next = 0
        self._nodes = self._register(case, nodes)
        self._epoch = store.run(self.commands.read_partition(0)).epoch
        self._seats = [(name, slot) for name in self._nodes for slot in range(COST_NODE_SLOTS)]
        self._dice.shuffle(self._seats)

    def _register(self, case: CostCase, nodes: int) -> dict[str, tuple[int, int]]:
        """Register the nodes; return the incarnation and the first bit of each."""
        known_tasks = KnownTasks.of({BENCH_TASK: None})
        offer = offer_with(
            Resources.of(COST_NODE_SLOTS, case.resources, case.labels), known_tasks
        ).text
        names = [f"n{number}" for number in range(nodes)]
        self.store.run_all([self.commands.offer(name, offer, known_tasks) for name in names])
        registrations = self.store.run_all(
            [self.commands.register_node(0, name, 0, 1.0, offer) for name in names]
        )
        return dict(zip(names, registrations, strict=True))

    def begin(self, count: int, of_one: int = 0) -> None:
        """Make `count` new tasks, which the following verbs are about.

        of_one: the number of consecutive tasks of one shard; 0 for any shard.
        """
        ids = [str(UUID(int=self._dice.getrandbits(128))) for _ in range(count)]
        if of_one and self.shards > 1:
            ids = [
                id_in_shard((self._next + position // of_one) % self.shards, self.shards)
                for position in range(count)
            ]
            self._next += -(-count // of_one)
        self._submissions = [
            Submission(id, BENCH_TASK, MESSAGE, self._options_of(number))
            for number, id in enumerate(ids)
        ]
        self._taken = []
        self._places = []

    def _options_of(self, number: int) -> TaskOptions:
        """Return the options of a task; equal options are one object."""
        return replace(self._options, tenant=f"t{number}") if self._tenants else self._options

    def step(self, verb: str, size: int) -> None:
        """Run one verb for all tasks, `size` of them a call."""
        steps: dict[str, Callable[[int], None]] = {
            "submit": self._submit,
            "take": self._take,
            "commit": self._commit,
            "confirm": self._confirm,
            "start": self._start,
            "finish": self._finish,
            "release": self._release,
        }
        steps[verb](size)

    def _submit(self, size: int) -> None:
        for batch in batches(self._submissions, size):
            words = self.store.run(self.commands.submit(batch))
            _expect("submit", "submitted", words)

    def _take(self, size: int) -> None:
        """Take from the shards in turn, one shard a call, as schedulers do."""
        for shard, tasks in self.store.keys.by_shard(self._submissions, attrgetter("id")):
            for batch in batches(tasks, size):
                rows = [*Counter(task.kind.text for task in batch).items()]
                since = self._since[shard]
                call = self.commands.take(
                    _SCHEDULER, rows, since, MAX_BATCH, _ATTEMPT_SALT, "wait", shard
                )
                took = self.store.run(call)
                self._since[shard] = took.version
                self._taken += took.tasks
                _expect("take", True, [len(took.tasks) == len(batch)])

    def _commit(self, size: int) -> None:
        for batch in batches(self._taken, size):
            seats = [self._seats.pop() for _ in batch]
            claims = [
                self._claim(task, node, slot)
                for task, (node, slot) in zip(batch, seats, strict=True)
            ]
            verdicts = self.store.run(self.commands.commit(0, claims)).verdicts
            _expect("commit", "held", [verdict.word for verdict in verdicts])
            self._places += [
                claim.won(v.since_ms, v.held) for claim, v in zip(claims, verdicts, strict=True)
            ]

    def _claim(self, task: Taken, node: str, slot: int) -> Claim:
        inc, first = self._nodes[node]
        return Claim(
            task.id,
            task.attempt,
            0,
            node,
            (slot,),
            inc,
            self._options.needs.asked,
            first,
            self._epoch,
        )

    def _confirm(self, size: int) -> None:
        for batch in batches(self._places, size):
            words = self.store.run(self.commands.confirm(batch))
            _expect("confirm", "placed", words)

    def _start(self, size: int) -> None:
        for batch in batches(self._places, size):
            _expect("start", "ok", [word for word, _ in self.store.run(self.commands.start(batch))])

    def _finish(self, size: int) -> None:
        for batch in batches(self._places, size):
            words = self.store.run(self.commands.finish([(p, "succeeded", "") for p in batch]))
            _expect("finish", "ok", words)

    def _release(self, size: int) -> None:
        for batch in batches(self._places, size):
            words = self.store.run(self.commands.release(0, batch))
            _expect("release", "freed", words)
        self._seats = [(p.node, p.slot) for p in self._places] + self._seats


def _expect(verb: str, word: object, answers: Sequence[object]) -> None:
    if any(answer != word for answer in answers):
        raise BrokenContract(f"bench cost: {verb} answered {answers!r}, not {word!r} for each task")
