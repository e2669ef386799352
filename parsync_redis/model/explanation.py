"""The explanation of a task's place or wait: one value for client, command line and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from .human import age_text
from .status import Setback


class Outlook(StrEnum):
    """The outlook of a task: placed at once, waiting, impossible on every node, or not waiting.

    refused: a planned task that `submit` would refuse, because nobody knows a limit of it.
    """

    NOW = "now"
    WAITS = "waits"
    NEVER = "never"
    REFUSED = "refused"
    PLACED = "placed"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why a node does not take a task.

    rule: the name of the rule that the node fails.
    static: True if the node could not hold the task even if it were empty.
    what: the resource, condition or state in question, equal for similar nodes.
    why: a sentence without its subject, which is the node.
    short: the missing amount; 0 if nothing is missing in numbers.
    """

    rule: str
    static: bool
    what: str
    why: str
    short: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that fail the same rules for the same reasons.

    obstacles: the obstacles at the node that lacks least.
    """

    nodes: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A moment that is not known exactly: three percentiles of server time, in ms.

    With a probability of 5, 50 and 95 % the moment is not later. The forecast uses learnt run
    times. It holds if no task is submitted meanwhile that comes first.
    """

    p5_ms: int
    p50_ms: int
    p95_ms: int

    def not_before(self, moment_ms: int) -> "Forecast":
        """Return the forecast of whichever is later: this moment or the forecast one."""
        return Forecast(
            *(max(moment_ms, known_ms) for known_ms in (self.p5_ms, self.p50_ms, self.p95_ms))
        )

    def text(self, now_ms: int) -> str:
        """Return the time from now, for people: 'between 12s and 4m, 9 times of 10'."""
        soonest, latest = (
            age_text((known_ms - now_ms) / 1000) for known_ms in (self.p5_ms, self.p95_ms)
        )
        return (
            f"between {soonest} and {latest}, 9 times of 10"
            if soonest != latest
            else f"about {soonest}"
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """A task that holds slots of a node.

    until: the forecast of its end; None if too few runs of its name are learnt.
    """

    node: str
    task: str
    name: str
    since_ms: int
    until: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A rule, and the number of nodes that passed all rules up to it."""

    rule: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node by one soft rule, compared with the other nodes that have room for the task.

    rule: its name, 'pack' or 'zone=a'.
    bucket: of the node, 0 the best.
    best: the best bucket of the nodes that are as good by the rules before.
    nodes: number of nodes that are as good by this rule and the rules before.
    sentence: what nodes of the bucket have in common, '0 to 25 % of its scarcest amount is left'.
    """

    rule: str
    bucket: int
    best: int
    nodes: int
    sentence: str = ""

    @property
    def text(self) -> str:
        """Return the bucket for people: 'pack 3 of 0 (75 to 100 % ... is left)'."""
        best = f" of {self.best}" if self.best < self.bucket else ""
        sentence = f" ({self.sentence})" if self.sentence not in ("", self.rule) else ""
        return f"{self.rule} {self.bucket}{best}{sentence}"


def buckets_text(ranked: Sequence[Ranked], fitted: int) -> str:
    """Return a node by its soft rules, for people; '' if the task has no preferences.

    The first rule, which keeps scarce resources for other tasks, is named if it tells nodes apart.

    ranked: the soft rules in order.
    fitted: number of nodes with room.
    """
    is_idle = ranked and not ranked[0].bucket and ranked[0].nodes == fitted
    return ", ".join(rule.text for rule in ranked[1 if is_idle else 0 :])


@dataclass(frozen=True, slots=True)
class RankedNode:
    """A node with room for a task.

    score: of the node.
    ranked: the soft rules in order.
    """

    node: str
    score: float
    ranked: tuple[Ranked, ...]


@dataclass(frozen=True, slots=True)
class RankedNodes:
    """The nodes with room for a task, in the order in which a scheduler would take them now.

    The scheduler has read all nodes just now. Among nodes that are equal by all rules, the node of
    the highest score comes first here; schedulers take any of them, those of a high score more
    often.

    fitted: number of nodes with room.
    equal: number of nodes that are as good as the first node by all rules.
    nodes: the first nodes, MOST_RANKED at most.
    """

    fitted: int
    equal: int
    nodes: tuple[RankedNode, ...]

    def lines(self, most: int) -> Sequence[str]:
        """Return for people the counts, and up to `most` nodes with their buckets."""
        counts = f"nodes with room: {self.fitted:,}; as good as the best: {self.equal:,}"
        nodes = [
            "; ".join(
                filter(None, (buckets_text(node.ranked, self.fitted), f"score {node.score:g}"))
            )
            for node in self.nodes[:most]
        ]
        return [counts, *(f"{n.node}: {text}" for n, text in zip(self.nodes, nodes, strict=False))]


MOST_RANKED: Final = 10
"""The maximum number of nodes that RankedNodes has."""

MAX_WORD: Final = 100
"""The maximum number of characters of a word of a stored choice."""

MOST_LOST_TO: Final = 5
"""The maximum number of lost claims of which a choice says who got the slot."""


def _cut(word: str) -> str:
    """Return a word of a stored choice, shortened if it is long."""
    return word if len(word) <= MAX_WORD else f"{word[: MAX_WORD - 3]}..."


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a node for a task, as its scheduler saw the cluster.

    Schedulers record some of their choices in each gap.

    strategy: latency or quality, at that moment.
    age_s: the age of the partition copy when the claim was judged.
    steps: the hard rules in order; the last step is the nodes with a seat.
    score: the node's score.
    best: the highest score among the nodes that were as good by all soft rules.
    rank: 1 if none of these nodes has a higher score.
    lost_to: the tasks that had the slots of the last MOST_LOST_TO lost claims, '' for a slot that
        was closed.
    ranked: the soft rules in order.
    lost: number of claims of this attempt that were lost before.
    """

    scheduler: str
    node: str
    strategy: str
    age_s: float
    steps: tuple[Step, ...]
    score: float
    best: float
    rank: int
    lost_to: tuple[str, ...] = ()
    ranked: tuple[Ranked, ...] = ()
    lost: int = 0

    @property
    def fitted(self) -> int:
        """Return the number of nodes that fitted and had room."""
        return self.steps[-1].nodes if self.steps else 0

    @property
    def equal(self) -> int:
        """Return the number of nodes that were as good as the chosen node by all soft rules."""
        return self.ranked[-1].nodes if self.ranked else self.fitted

    def lines(self) -> Sequence[str]:
        """Return the choice for people."""
        had = "node was" if self.equal == 1 else "nodes were"
        facts = [
            buckets_text(self.ranked, self.fitted) or "no preference told nodes apart",
            f"{self.equal:,} {had} as good",
            f"{self.fitted:,} fitted with room",
            f"the view was {age_text(self.age_s)} old",
            self._losses(),
        ]
        steps = " -> ".join(f"{step.nodes:,} {step.rule}" for step in self.steps)
        rank = f"number {self.rank} of those as good; the best of them has {self.best:g}"
        return [
            f"{self.node}: {'; '.join(facts)}",
            f"chosen by {self.scheduler}, {self.strategy}; candidates: {steps}",
            f"{self.node} has score {self.score:g}, {rank}",
        ]

    def _losses(self) -> str:
        """Return how many claims were lost before, and to whom."""
        if not self.lost:
            return "no lost claim before"
        holders = ", ".join(holder or "a closed slot" for holder in self.lost_to)
        plural = "" if self.lost == 1 else "s"
        return f"{self.lost:,} lost claim{plural} before (to {holders})"

    @property
    def text(self) -> str:
        """Return the choice as Redis has it: JSON, of 4,096 bytes at most; long words are cut."""
        steps = [[step.rule, step.nodes] for step in self.steps]
        ranked = [[_cut(r.rule), r.bucket, r.best, r.nodes, _cut(r.sentence)] for r in self.ranked]
        fields = {
            **asdict(self),
            "steps": steps,
            "ranked": ranked,
            "lost_to": [*map(_cut, self.lost_to)],
            "age_s": round(self.age_s, 4),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> "Choice | None":
        """Read a choice; return None for any other text."""
        try:
            fields = json.loads(text)
            steps = tuple(Step(str(rule), int(nodes)) for rule, nodes in fields.pop("steps"))
            lost_to = tuple(map(str, fields.pop("lost_to")))
            ranked = tuple(
                Ranked(str(rule), int(bucket), int(best), int(nodes), str(sentence))
                for rule, bucket, best, nodes, sentence in fields.pop("ranked")
            )
            scheduler, node, strategy = (
                str(fields[name]) for name in ("scheduler", "node", "strategy")
            )
            sizes = [float(fields[name]) for name in ("age_s", "score", "best")]
            if not all(map(math.isfinite, sizes)):
                return None
            return cls(
                scheduler,
                node,
                strategy,
                sizes[0],
                steps,
                sizes[1],
                sizes[2],
                int(fields["rank"]),
                lost_to,
                ranked,
                int(fields["lost"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a task, or of a planned task, whose id is ''.

    why: one sentence.
    classes: all nodes, those that lack least first.
    nearest: the node that lacks least, '' without nodes.
    holders: the tasks that hold what that node lacks; the task that ends first comes first.
    ahead: the number of waiting tasks that come before this task and could go to a node that fits
        it; None if there are too many kinds and nodes to count.
    ahead_alike: those of `ahead` with equal needs.
    start: the forecast of its start; None if unknown, or if the task does not wait.
    no_forecast: why a waiting task has no `start`.
    remedies: changes of which each lets the task run, once the tasks before it have gone.
    history: lost attempts, and why they left their nodes.
    choice: why the task has its place; None if the choice was not recorded.
    tenant, limits: the accounts of the task, as its kind has them.
    prefer: the soft rules of the task, as its kind has them.
    candidates: the nodes where a task that is not placed has room; None if there are none.
    """

    id: str
    name: str
    needs: str
    outlook: Outlook
    why: str
    priority: int = 0
    node: str | None = None
    classes: Sequence[NodeClass] = ()
    nearest: str = ""
    holders: Sequence[Holding] = ()
    ahead: int | None = 0
    ahead_alike: int | None = 0
    now_ms: int = 0
    start: Forecast | None = None
    no_forecast: str = ""
    remedies: Sequence[str] = ()
    history: Sequence[Setback] = ()
    choice: Choice | None = None
    tenant: str = ""
    limits: str = ""
    prefer: str = ""
    candidates: RankedNodes | None = None

    @property
    def start_text(self) -> str:
        """Return when the task starts, for people; '' if it does not wait or could never start."""
        if self.outlook is not Outlook.WAITS:
            return ""
        if self.start is None:
            return f"when it starts is not known yet: {self.no_forecast}"
        return (
            f"it starts in {self.start.text(self.now_ms)}, if nothing is submitted that comes "
            "before it"
        )
