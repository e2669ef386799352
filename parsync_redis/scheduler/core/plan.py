"""The plan of the core for one round trip, and the counters of a scheduler."""

from dataclasses import dataclass, field

from ...model.claim import Claim
from ...model.explanation import Choice
from ...model.place import GiveBack, Place
from ...model.replies import AfterTake
from .claim_outcomes import RefusingNode


@dataclass(slots=True)
class ShardLook:
    """A look at a shard of the queue.

    take: by kind, how many tasks to take; 0 to mark its accounts that are full.
    since: the version of this scheduler's copy of the shard.
    waits: 'wake' wakes another scheduler, 'wait' lets the next kind that begins to wait wake this
        scheduler; see lua/verbs/take.lua.
    """

    take: list[tuple[str, int]] = field(default_factory=list)
    since: str = "0"
    waits: AfterTake = ""


@dataclass(slots=True)
class Plan:
    """The steps of one round trip; process/plan_runner.py has their order.

    The replies to commits, reads and looks come back to the core as events.

    confirm: won claims.
    reasons: by shard, (kind, why its tasks wait).
    give_back: (task, attempt, how).
    commit: by partition, claims.
    read: partitions.
    read_nodes: partitions whose nodes are read before all else.
    check_nodes: those of `read` whose nodes are read again, because capacities may have changed.
    ask: those of `read` that tell this scheduler of the next slot freed there.
    shard_looks: by shard.
    choices: by task, why it has its place.
    suspect: nodes that refuse claims.
    """

    confirm: list[Place] = field(default_factory=list)
    reasons: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    give_back: list[tuple[str, str, GiveBack]] = field(default_factory=list)
    commit: dict[int, list[Claim]] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    read_nodes: list[int] = field(default_factory=list)
    check_nodes: list[int] = field(default_factory=list)
    ask: set[int] = field(default_factory=set)
    shard_looks: dict[int, ShardLook] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    suspect: list[RefusingNode] = field(default_factory=list)

    def look_at(self, shard: int) -> ShardLook:
        """Return the look at a shard; add a look if there is none yet."""
        return self.shard_looks.setdefault(shard, ShardLook())

    def __bool__(self) -> bool:
        return bool(
            self.confirm
            or self.reasons
            or self.give_back
            or self.commit
            or self.shard_looks
            or self.read
            or self.read_nodes
            or self.choices
            or self.suspect
        )


@dataclass(slots=True)
class Counters:
    """Counters of a scheduler since it started.

    claims = placed + conflicts. merged: the placed claims whose partition had changed since the
    scheduler read it.
    """

    taken: int = 0
    claims: int = 0
    conflicts: int = 0
    placed: int = 0
    merged: int = 0
    given_back: int = 0
    ticks: int = 0
    own_ticks: int = 0
    reads: int = 0
