"""The explanation of a task's place or wait: one value for client, command line and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

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
    """A soft rule of a choice.

    rule: its name, 'pack' or 'zone:a'.
    bucket: of the chosen node, 0 the best.
    best: the best bucket of the nodes that were as good by the rules before.
    nodes: number of nodes with a seat that were as good by this rule and the rules before.
    """

    rule: str
    bucket: int
    best: int
    nodes: int


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
    lost_to: the tasks that had the slots of earlier claims, '' for a slot that was closed.
    ranked: the soft rules in order.
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

    @property
    def text(self) -> str:
        """Return the choice as Redis has it: JSON."""
        steps = [[step.rule, step.nodes] for step in self.steps]
        ranked = [[r.rule, r.bucket, r.best, r.nodes] for r in self.ranked]
        fields = {
            **asdict(self),
            "steps": steps,
            "ranked": ranked,
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
                Ranked(str(rule), int(bucket), int(best), int(nodes))
                for rule, bucket, best, nodes in fields.pop("ranked")
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
