"""The duty to make nodes suspect that are always free, and would get every task.

On such a node tasks do not start, or fail although they succeed elsewhere. Nodes report streaks of
failures; the script keeps beside each streak what other nodes report meanwhile (decision 0035).
"""

import logging
from typing import Final

from ...model.limits import MAX_BATCH
from ...model.node import trial_note
from ...model.place import Place
from ...model.streak import Streak, damning
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..process.guarded import guarded
from .drains import PROBATION_LEASES

TASKS_TO_SUSPECT: Final = 3
"""Number of tasks in a row that a node must fail to start within a lease to become suspect."""

SUSPECT_WITHIN_LEASES: Final = 5
"""Number of leases for which a task that did not start counts against its node."""


class Suspects:
    """The duty to requeue tasks that do not start, and to make their node suspect.

    The duty keeps, for each incarnation of a node, when tasks were put back since a task last
    started there.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        self._failed: dict[tuple[int, str, int], list[float]] = {}

    def reset(self) -> None:
        """Forget all failures."""
        self._failed.clear()

    def started(self, place: Place) -> None:
        """Forget the failures of a node, because a task runs there."""
        self._failed.pop((place.partition, place.node, place.inc), None)

    def put_back(self, p: int, node: str, late: list[Place], now_s: float) -> None:
        """Requeue tasks that a node did not start for a lease, free their slots, and count them.

        A node that runs anything is left alone: a worker that runs its tasks itself (solo) answers
        doorbells only between tasks.
        """
        store = self._store
        commands = self._store.commands
        record = store.nodes(p).get(node)
        leases = store.leases(p, [record]) if record else []
        if not leases or "running" in store.states([lease.place.task for lease in leases]):
            return
        why = f"{node} did not start it for a lease"
        words = store.run(commands.requeue([(place, why) for place in late], "unstarted"))
        requeued = [place for place, word in zip(late, words, strict=True) if word != "none"]
        store.run(commands.release(p, requeued))
        key = (p, node, late[0].inc)
        failed = [
            failed_s
            for failed_s in self._failed.pop(key, [])
            if now_s - failed_s < SUSPECT_WITHIN_LEASES * self._lease_s
        ]
        failed += [now_s] * len(requeued)
        if len(failed) < TASKS_TO_SUSPECT:
            self._failed[key] = failed
            return
        names = " ".join(place.task for place in requeued[:TASKS_TO_SUSPECT])
        log.warning(
            "node %s lives, but did not start what it got (%s): it is suspect, and gets no more",
            node,
            names,
        )
        why = f"alive, but {len(failed)} tasks in a row did not start there, the last: {names}"
        store.run(commands.set_node(p, node, "suspect", late[0].inc, why))


log = logging.getLogger("parsync.leader")

MAX_PROBATION_S: Final = 3600.0
"""Maximum pause before a trial."""

OLD_MS: Final = 3_600_000
"""Age of a streak's last try, in ms, above which the streak tells nothing of today."""

_Node = tuple[int, str, int]
"""Partition, name and incarnation."""


class BlackHoleDuty:
    """The duty to make nodes suspect by their streaks, and to drop old streaks.

    The duty counts how often each incarnation was made suspect, and the tries at that time. An
    earlier leader may have judged the streaks that a new leader finds, so a new leader waits for
    another try of each node. held: whether a node holds back a name.
    """

    def __init__(self, store: Store, partitions: int, lease_s: float) -> None:
        self._store = store
        self._partitions = partitions
        self._lease_s = lease_s
        self._judged: dict[_Node, tuple[int, int]] = {}
        self._is_new = True
        # perhaps the leader before this one knew of a hold
        self.held = True

    def work(self) -> None:
        """Judge the nodes that have streaks. A judged node is judged again after another try."""
        nodes: dict[_Node, list[Streak]] = {}
        old: dict[str, None] = {}
        held_ms = 0
        fields = self._store.hash(self._store.keys.shared("streaks"))
        now = now_ms(self._store) if fields else 0
        for name, text in fields.items():
            for streak in Streak.read(name, text):
                held_ms = max(held_ms, streak.held_ms)
                if streak.at_ms <= now - OLD_MS:
                    old[name] = None
                else:
                    nodes.setdefault((streak.partition, streak.node, streak.inc), []).append(streak)
        self.held = held_ms > now
        self._judged = {node: judged for node, judged in self._judged.items() if node in nodes}
        for node, streaks in nodes.items():
            guarded(self._store, "black holes", self._judge, node, streaks)
        self._is_new = False
        if old:
            guarded(self._store, "black holes", self._drop, [*old][:MAX_BATCH])

    def _drop(self, names: list[str]) -> None:
        """Drop the old streaks of these names, because no node may ever report them again."""
        counts = [(name, 0, 0, 0, 0) for name in names]
        self._store.run(self._store.commands.report_failures(0, "", 0, 0, False, counts))

    def _judge(self, node: _Node, streaks: list[Streak]) -> None:
        """Judge a node by its streaks."""
        times, tries = self._judged.get(node, (0, 0))
        damning_streaks = damning(streaks)
        tried = sum(streak.tries for streak in streaks)
        if damning_streaks and tried > tries:
            suspected = not self._is_new and self._suspect(*node, damning_streaks, times)
            self._judged[node] = times + suspected, tried

    def _suspect(
        self, p: int, name: str, inc: int, damning_streaks: list[Streak], times: int
    ) -> bool:
        """Make a node suspect if it is up. Returns whether the node is suspect.

        The pauses before its trials double.
        """
        if (
            not 0 <= p < self._partitions
            or getattr(self._store.nodes(p).get(name), "state", "") != "up"
        ):
            return False
        probation_s = min(PROBATION_LEASES * self._lease_s * 2**times, MAX_PROBATION_S)
        why = trial_note(reason(damning_streaks), probation_s)
        state = self._store.run(self._store.commands.set_node(p, name, "suspect", inc, why))[1:2]
        if state == ["suspect"]:
            log.warning("node %s is suspect: %s", name, why)
        return state == ["suspect"]


def reason(streaks: list[Streak]) -> str:
    """Return the sentence of the streaks that show a black hole; it names the longest three."""
    streaks = sorted(streaks, key=lambda streak: -streak.length)
    parts = []
    for streak in streaks[:3]:
        succeeded = f"{streak.runs - streak.failed} of {streak.runs} succeeded on other nodes"
        parts.append(f"{streak.length} tasks of {streak.name} in a row, while {succeeded}")
    uncounted = f", and of {len(streaks) - 3} other names" if len(streaks) > 3 else ""
    return f"tasks fail there at once: {'; '.join(parts)}{uncounted}"
