"""Notes why this scheduler chose a place: of a few tasks in each gap, so that people can ask."""

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
from ...placement.rules import PLACEMENT_RULES
from ...placement.strategy import Floats
from .kind_group import KindGroup
from .partition import PartitionCopy
from .plan import Plan
from .reservations import seats_for
from .scarce import not_asked
from .view import View

CHOICES_PER_GAP: Final = 5
"""Number of choices noted in each gap."""

MAX_LOST_CLAIMS: Final = 1000
"""Maximum number of tasks whose lost claims are kept."""


class Choices:
    """The reasons why this scheduler chose the places of some claims.

    A choice is a draft until its claim is judged. If the claim won, the choice is ready to be
    written.
    """

    def __init__(self, view: View, scheduler: str) -> None:
        self._view = view
        self._scheduler = scheduler
        self._left = CHOICES_PER_GAP
        self._due = False
        self._drafts: dict[str, Choice] = {}
        # by task, the tasks that had its slots
        self._lost: dict[str, tuple[str, ...]] = {}
        self._ready: dict[str, Choice] = {}

    @property
    def wanted(self) -> bool:
        """True while this gap allows more notes."""
        return self._left > 0

    def on_gap(self) -> None:
        """Begin a gap: write the choices that are ready, and allow CHOICES_PER_GAP notes again."""
        self._left = CHOICES_PER_GAP
        self._due = True
        # some of these tasks were cancelled, or their next claims were not noted
        if len(self._lost) > MAX_LOST_CLAIMS:
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
        noted = list(zip(tasks, nodes, strict=True))[: self._left]
        self._left -= len(noted)
        steps, scores_of_all, last = self._census(group, copy, nodes)
        scarce = copy.offers.having(not_asked(group.needs, self._view.scarce))
        first = scores_of_all[~last]
        for task, node in noted:
            scores = scores_of_all
            last_step = tuple[Step, ...]()
            if last.any() and not scarce[copy.offers.index_of(node.name)]:
                scores = first
                last_step = (Step("not kept back", len(first)),)
            self._drafts[task.id] = Choice(
                self._scheduler,
                node.name,
                strategy.value,
                copy.read_s,
                (*steps, *last_step),
                node.score,
                float(scores.max()),
                int((scores > node.score).sum()) + 1,
                self._lost.get(task.id, ()),
            )

    def on_judged(self, judged: Judged, now_s: float) -> None:
        """Make the choices ready whose claims won; note who has the slots of lost claims."""
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
        """Plan once in a gap to write the choices that are ready."""
        if self._due:
            plan.choices = self._ready
            self._ready = {}
            self._due = False

    def _census(
        self, group: KindGroup, copy: PartitionCopy, chosen: Sequence[Node]
    ) -> tuple[tuple[Step, ...], Floats, Mask]:
        """Return the counts of nodes after each test, and the scores of the nodes with a seat.

        The counts are over all partitions. The third value says which nodes with a seat are kept
        back. chosen: nodes of `copy` that had a seat until it was claimed.
        """
        counts = np.zeros(
            len(PLACEMENT_RULES) + 5, dtype=np.int64
        )  # the last count is of the nodes with a seat
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
        scores_of_all = np.concatenate(scores)
        counts[-1] = len(scores_of_all)
        names = ["nodes", "name", "near", *(rule.name for rule in PLACEMENT_RULES), "state", "free"]
        steps = tuple(Step(name, count) for name, count in zip(names, counts.tolist(), strict=True))
        return steps, scores_of_all, np.concatenate(last)
