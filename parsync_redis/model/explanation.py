"""Why a task waits, where it would go, or why it is where it is: one value for client, command line
and JSON.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from .human import age_text
from .status import Setback


class Outlook(StrEnum):
    """What to expect of a task: it is placed at once, it waits, no node could ever hold it, or it
    is not waiting.
    """

    NOW = "now"
    WAITS = "waits"
    NEVER = "never"
    PLACED = "placed"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The rule by which a node does not take a task.

    rule: the name of the rule that turns it away. static: True if the node could not hold the task
    even if it were empty. what: what the obstacle is about, equal for nodes that are alike: a
    resource, a condition, a state. why: a sentence without its subject, which is the node. short:
    by how much, 0 if that is no number.
    """

    rule: str
    static: bool
    what: str
    why: str
    short: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that the same rules keep from a task for the same things.

    obstacles: those of the node that lacks least.
    """

    nodes: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A moment that is not known (server time, ms): with 5, 50 and 95 of 100 in probability it is
    not later than this.

    It follows from run times that are learnt, and holds if no task is submitted meanwhile that
    comes first.
    """

    p5_ms: int
    p50_ms: int
    p95_ms: int

    def not_before(self, moment_ms: int) -> "Forecast":
        """Return the forecast of the later of this moment and a known one."""
        return Forecast(
            *(max(moment_ms, known_ms) for known_ms in (self.p5_ms, self.p50_ms, self.p95_ms))
        )

    def text(self, now_ms: int) -> str:
        """Return how far off it is, for people: 'between 12s and 4m, 9 times of 10'."""
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

    until: when it ends, None if too little is known of its name.
    """

    node: str
    task: str
    name: str
    since_ms: int
    until: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A rule, and how many nodes were left after it."""

    rule: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a node, as the scheduler saw the cluster.

    Schedulers note some choices in each gap, not all.

    strategy: latency or quality, as it was at that moment. age_s: of the copy of the node's
    partition when the claim was judged. steps: the rules in order; the last one, `not kept back`,
    is there if nodes with a scarce resource had a seat as well. score: the node's; best: the
    highest of the nodes that are left; rank: 1 if none of them is better. lost_to: the tasks that
    had the slots of earlier claims, '' for a slot that was closed.
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

    @property
    def text(self) -> str:
        """Return the choice as Redis has it: JSON."""
        steps = [[step.rule, step.nodes] for step in self.steps]
        fields = {**asdict(self), "steps": steps, "age_s": round(self.age_s, 4)}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> "Choice | None":
        """Read a choice; None for any other text."""
        try:
            fields = json.loads(text)
            steps = tuple(Step(str(rule), int(nodes)) for rule, nodes in fields.pop("steps"))
            lost_to = tuple(map(str, fields.pop("lost_to")))
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
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a task, or of one that is only planned (id '').

    why: one sentence. classes: all nodes, those that lack least first. nearest: the node that lacks
    least, '' if there is none; holders: the tasks that hold what it lacks, the one that ends first
    in front. ahead: how many waiting tasks come before it and could be placed on a node that fits
    it, of them `ahead_alike` with equal needs; None if their kinds and the nodes are too many to
    count them. start: when it starts; None if that is not known, or it waits no more. no_forecast:
    why a waiting task has no `start`. remedies: what would let it run, each enough once the tasks
    before it have gone. history: attempts that were lost, and why they left their nodes. choice:
    why a task has its place, None if that was not noted.
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

    @property
    def start_text(self) -> str:
        """When it starts, for people; '' if it does not wait, or could never start."""
        if self.outlook is not Outlook.WAITS:
            return ""
        if self.start is None:
            return f"when it starts is not known yet: {self.no_forecast}"
        return (
            f"it starts in {self.start.text(self.now_ms)}, if nothing is submitted that comes "
            "before it"
        )
