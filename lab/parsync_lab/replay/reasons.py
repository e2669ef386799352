"""Count why pods of a replay wait, in the sentences of the product."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from parsync_redis.placement.now import classify
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.kind_group import WaitingKind
from parsync_redis.scheduler.core.view import View, fitting

MOST_REASONS: Final = 10


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """A reason why pods wait.

    why: the obstacle at the nearest node.
    fitting: the number of nodes that could hold such a pod when empty.
    models: the GPU models that the pods accept, '' for any.
    sentence: the sentence that a scheduler wrote to the pods of one kind.
    """

    pods: int
    models: str
    fitting: int
    why: str
    sentence: str


def count_reasons(core: Core) -> list[WhyWaiting]:
    """Return the reasons why pods wait, from a scheduler's copies of queue and nodes.

    The reason of most pods comes first.
    """
    kinds_by_reason: defaultdict[tuple[str, int, str], list[WaitingKind]] = defaultdict(list)
    for shard_kinds in core.queue.kinds:
        for waiting in shard_kinds.values():
            kinds_by_reason[_cause(core.view, waiting)].append(waiting)
    reasons = []
    for (models, nodes, why), kinds in kinds_by_reason.items():
        commonest = max(kinds, key=lambda kind: kind.count)
        sentence = core.view.explain(commonest.group.needs, commonest.group.knowers)
        reasons.append(WhyWaiting(sum(kind.count for kind in kinds), models, nodes, why, sentence))
    return sorted(reasons, key=lambda reason: (-reason.pods, reason.models, reason.why))


def _cause(view: View, waiting: WaitingKind) -> tuple[str, int, str]:
    """Return the accepted models, how many nodes fit, and the obstacle at the nearest of them."""
    needs = waiting.group.needs
    knowers = waiting.group.knowers
    models = " ".join(dict(needs.labels).values())
    facts = [fact for p in view.partitions for fact in fitting(p, needs, knowers, len(p.nodes))[0]]
    if not facts:
        return models, 0, view.explain(needs, knowers)
    nearest = classify(needs, facts)[0]
    return models, len(facts), "; ".join(obstacle.why for obstacle in nearest.obstacles)
