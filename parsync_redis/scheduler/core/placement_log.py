"""Notes why this scheduler chose a place: of a few tasks in each gap, so that people can ask."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from ...model.claim import Claim, ClaimOutcome, Verdict
from ...model.explanation import MOST_LOST_TO, Choice, Ranked, Step
from ...model.node import Node
from ...model.options import Strategy
from ...model.replies import Judged
from ...model.task import Taken
from ...placement.preferences import rules_of
from ...placement.preferences.marks import ElsewherePreference
from ...placement.preferences.preference import Preference
from ...placement.preferences.ranks import compare, with_second
from ...placement.rules import PLACEMENT_RULES
from ...placement.strategy import Floats, Ints
from .freshness import places_in_turn
from .kind_group import KindGroup
from .partition import PartitionCopy, Reservation
from .plan import Plan
from .reservations import seats_for
from .view import View

CHOICES_PER_GAP: Final = 5
"""Number of choices noted in each gap."""

MAX_LOST_CLAIMS: Final = 1000
"""Maximum number of attempts whose lost claims are kept."""


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
        # by task and attempt, how many claims it lost, and the tasks that had the last slots
        self._lost: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        self._ready: dict[str, Choice] = {}

    @property
    def wanted(self) -> bool:
        """True while this gap allows more notes."""
        return self._left > 0

    def on_gap(self) -> None:
        """Begin a gap: write the choices that are ready, and allow CHOICES_PER_GAP notes again."""
        self._left = CHOICES_PER_GAP
        self._due = True
        # the oldest, because most attempts have a place by now
        for attempt in [*islice(self._lost, max(0, len(self._lost) - MAX_LOST_CLAIMS))]:
            del self._lost[attempt]

    def on_claim(
        self,
        tasks: Sequence[Taken],
        group: KindGroup,
        reservation: Reservation,
        strategy: Strategy,
        unused: Sequence[Reservation] = (),
    ) -> None:
        """Note the choice of the first seats of a reservation for tasks, as far as a gap allows.

        Preferences about room look at the nodes as they were without the reservations.

        unused: the reservations that the tasks had and do not use.
        """
        copy = reservation.partition
        noted = list(zip(tasks, reservation.owners, strict=False))[: self._left]
        self._left -= len(noted)
        put_back = [reservation, *unused] if group.prefer or unused else []
        for reserved in put_back:
            reserved.partition.change(reserved, -1)
        for task, owner in noted:
            node = copy.nodes[owner]
            lost, lost_to = self._lost.get((task.id, task.attempt), (0, ()))
            rules = reservation.rules or rules_of("")
            rank = reservation.rank_of(node)
            if task.last and not any(isinstance(rule, ElsewherePreference) for rule in rules):
                elsewhere = ElsewherePreference(task.last)
                rules, rank = with_second(rules, rank, elsewhere, int(node.name == task.last))
            steps, scores, ranked = self._census(group, copy, node, rank, rules)
            self._drafts[task.id] = Choice(
                self._scheduler,
                node.name,
                strategy.value,
                copy.read_s,
                steps,
                node.score,
                float(scores.max()),
                int((scores > node.score).sum()) + 1,
                lost_to,
                ranked,
                lost,
            )
        for reserved in put_back:
            reserved.partition.change(reserved, 1)

    def on_judged(self, judged: Judged, now_s: float) -> None:
        """Make the choices ready whose claims won, and drop those whose claims were lost."""
        if not self._drafts:
            return
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            draft = self._drafts.pop(claim.task, None)
            if draft and verdict.won:
                self._ready[claim.task] = replace(draft, age_s=max(0.0, now_s - draft.age_s))

    def on_lost(self, claim: Claim, verdict: Verdict) -> None:
        """Note who has the slots of a lost claim, for the choice of the next claim."""
        holder = verdict.detail if verdict.word is ClaimOutcome.CONFLICT else ""
        lost, lost_to = self._lost.get((claim.task, claim.attempt), (0, ()))
        self._lost[claim.task, claim.attempt] = lost + 1, (*lost_to, holder)[-MOST_LOST_TO:]

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
        self,
        group: KindGroup,
        copy: PartitionCopy,
        chosen: Node,
        rank: int,
        rules: Sequence[Preference],
    ) -> tuple[tuple[Step, ...], Floats, tuple[Ranked, ...]]:
        """Return the counts of nodes after each hard rule, and the soft rules.

        The counts are over all partitions. The second value is the scores of the nodes that are as
        good as the chosen node by all soft rules.

        chosen: a node of `copy` that had a seat until it was claimed.
        rank: of the chosen node at that time.
        """
        counts = np.zeros(len(PLACEMENT_RULES) + 4, dtype=np.int64)
        scores = list[Floats]()
        ranks = list[Ints]()
        places = places_in_turn(self._view.partitions)
        cluster = self._view.cluster_for(group.needs, group.knowers, group.prefer)
        for partition in self._view.partitions:
            offers = partition.offers
            counts += offers.census(group.needs, group.knowers)
            having = np.zeros(len(partition.nodes), dtype=bool)
            having[seats_for(group, partition).nodes] = True
            place = places[partition.number]
            of_nodes = partition.ranks(rules, group.needs, cluster, place)
            if partition is copy:
                having[offers.index_of(chosen.name)] = True
                of_nodes = of_nodes.copy()
                of_nodes[offers.index_of(chosen.name)] = rank
            scores.append(offers.scores[having])
            ranks.append(of_nodes[having])
        names = ["nodes", "name", "near", *(rule.name for rule in PLACEMENT_RULES), "state", "free"]
        all_scores = np.concatenate(scores)
        steps = tuple(
            Step(name, count)
            for name, count in zip(names, [*counts.tolist(), len(all_scores)], strict=True)
        )
        equal, ranked = compare(rules, np.concatenate(ranks), rank)
        return steps, all_scores[equal], ranked
