"""Note why this scheduler chose a place: of a few tasks in each gap, so that people can ask."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ...model.claim import ClaimOutcome
from ...model.explanation import Choice, Step
from ...model.node import Node
from ...model.options import Strategy
from ...model.replies import Judged
from ...model.task import Taken
from ...placement.columns import Mask
from ...placement.rules import RULES
from ...placement.strategy import Floats
from .kind_group import KindGroup
from .partition import PartitionCopy
from .plan import Plan
from .reservations import seats_for
from .scarce import not_asked
from .view import View

AT_ONCE: Final = 5
"""Choices that are noted in each gap."""

KEPT: Final = 1000
"""Tasks whose lost claims are kept."""


class Choices:
    """The choices of some claims: drafts until the claims are judged, then ready to be written."""

    def __init__(self, view: View, scheduler: str) -> None:
        self._view = view
        self._scheduler = scheduler
        self._left = AT_ONCE
        self._due = False
        self._drafts: dict[str, Choice] = {}
        self._lost: dict[str, tuple[str, ...]] = {}  # task -> those that had its slots
        self._ready: dict[str, Choice] = {}

    @property
    def wanted(self) -> bool:
        """True while this gap allows more."""
        return self._left > 0

    def on_gap(self) -> None:
        """Write those that are ready, and allow as many again."""
        self._left = AT_ONCE
        self._due = True
        if len(self._lost) > KEPT:  # tasks that were cancelled, or whose next claim was not noted
            self._lost.clear()

    def on_claim(
        self,
        tasks: Sequence[Taken],
        group: KindGroup,
        copy: PartitionCopy,
        nodes: Sequence[Node],
        strategy: Strategy,
    ) -> None:
        """Note the choice of nodes[i] for tasks[i], as far as this gap allows."""
        some = list(zip(tasks, nodes, strict=True))[: self._left]
        self._left -= len(some)
        steps, every, last = self._census(group, copy, nodes)
        scarce = copy.offers.having(not_asked(group.needs, self._view.scarce))
        first = every[~last]
        for task, node in some:
            scores = every
            more = tuple[Step, ...]()
            if last.any() and not scarce[copy.offers.index_of(node.name)]:
                scores = first
                more = (Step("not kept back", len(first)),)
            self._drafts[task.id] = Choice(
                self._scheduler,
                node.name,
                strategy.value,
                copy.read_s,
                (*steps, *more),
                node.score,
                float(scores.max()),
                int((scores > node.score).sum()) + 1,
                self._lost.get(task.id, ()),
            )

    def on_judged(self, judged: Judged, now_s: float) -> None:
        """Let the choices of claims that have won be written; note who has the slots of
        the others.
        """
        if not self._drafts:
            return
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            draft = self._drafts.pop(claim.task, None)
            if draft and verdict.won:
                self._ready[claim.task] = replace(draft, age_s=max(0.0, now_s - draft.age_s))
                self._lost.pop(claim.task, None)
            elif draft:
                holder = verdict.detail if verdict.word is ClaimOutcome.CONFLICT else ""
                self._lost[claim.task] = (*draft.lost_to, holder)

    def forget(self) -> None:
        """Drop what is not written."""
        self._drafts.clear()
        self._lost.clear()
        self._ready.clear()

    def fill(self, plan: Plan) -> None:
        """Plan to write the choices that are ready, once in a gap: they wait, tasks do not."""
        if self._due:
            plan.choices = self._ready
            self._ready = {}
            self._due = False

    def _census(
        self, group: KindGroup, copy: PartitionCopy, chosen: Sequence[Node]
    ) -> tuple[tuple[Step, ...], Floats, Mask]:
        """Return how many nodes each rule left, over all partitions; the scores of those with a
        seat; who is kept back.

        chosen: nodes of `copy` that had a seat before it was claimed.
        """
        counts = np.zeros(len(RULES) + 5, dtype=np.int64)  # the last one is of nodes with a seat
        scores = list[Floats]()
        last = list[Mask]()
        scarce = not_asked(group.needs, self._view.scarce)
        for partition in self._view.partitions:
            offers = partition.offers
            counts[:-1] += offers.census(group.needs, group.knowers)
            having = np.zeros(len(partition.nodes), dtype=bool)
            having[seats_for(group, partition).nodes] = True
            if partition is copy:
                having[[offers.index_of(node.name) for node in chosen]] = True
            scores.append(offers.scores[having])
            last.append(offers.having(scarce)[having])
        every = np.concatenate(scores)
        counts[-1] = len(every)
        names = ["nodes", "name", "near", *(rule.name for rule in RULES), "state", "free"]
        steps = tuple(Step(name, count) for name, count in zip(names, counts.tolist(), strict=True))
        return steps, every, np.concatenate(last)
