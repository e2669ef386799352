"""Commit, release and read in the store in memory.

A method with `keys` and `args` is a script. judge_claims, free_leases and read take and return
values instead, because the simulator calls them a thousand times a second.
"""

from collections.abc import Sequence
from typing import Any

from ...model.claim import Claim, ClaimOutcome, Verdict
from ...model.devices import hold
from ...model.needs import amounts_text
from ...model.place import Place
from ...model.replies import Snapshot
from .leases import Leases, NodeRecord, amounts_of
from .records import Args


def _claim(row: Any, epoch: int) -> Claim:
    """Return the claim of a row of commit."""
    place = Place.of(f"{row.text} since=0")
    bit = int(row.bits.partition(" ")[0])
    first = bit - place.slot
    return Claim(
        place.task,
        place.attempt,
        place.partition,
        place.node,
        place.slots,
        place.inc,
        place.asked,
        first,
        epoch,
    )


class Claiming(Leases):
    """The scripts that judge claims, free leases and read snapshots."""

    def commit(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Judge each claim by itself; the first claim wins."""
        verdicts = self.judge_claims([_claim(row, int(args.epoch)) for row in args.rows])
        answers = [
            (str(row), v)
            for row, v in enumerate(verdicts, 1)
            if v.word is not ClaimOutcome.HELD or v.held
        ]
        words = (word for row, v in answers for word in (row, v.word.value, v.detail))
        return [self.version, str(self.world.now_ms), *words]

    def judge_claims(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Commit on values: judge claims, and hold the leases of claims that win.

        Returns a verdict per claim.
        """
        verdicts = [self.judge(claim) or self._hold(claim) for claim in claims]
        self.version += any(verdict.word is ClaimOutcome.HELD for verdict in verdicts)
        return verdicts

    def judge(self, claim: Claim) -> Verdict | None:
        """Return the verdict on a claim that gets nothing new; None if the claim wins.

        If the epoch is the claim's epoch, then labels, state, incarnation and bits of the node are
        as its scheduler saw them.
        """
        lease = self.leases.get((claim.node, claim.slots[0]))
        if lease and lease == claim.won(lease.since_ms):
            return Verdict(ClaimOutcome.YOURS, str(lease.since_ms))
        asked_devices = lease and lease.devices and claim.asked
        if lease and asked_devices and lease == claim.won(lease.since_ms, lease.asked):
            return Verdict(ClaimOutcome.YOURS, f"{lease.since_ms} {lease.asked}")
        if claim.epoch != self.epoch:
            return Verdict(ClaimOutcome.CHANGED, str(self.epoch))
        for slot in claim.slots:
            lease = self.leases.get((claim.node, slot))
            if lease or not self._get(claim.first + slot):
                return Verdict(ClaimOutcome.CONFLICT, lease.task if lease else "")
        amounts_left = self.nodes[claim.node].amounts_left
        if hold(amounts_left, amounts_of(claim.asked)) is None:
            return Verdict(ClaimOutcome.SHORT, amounts_text(sorted(amounts_left.items())))
        return None

    def _hold(self, claim: Claim) -> Verdict:
        node = self.nodes[claim.node]
        amounts_held = hold(node.amounts_left, amounts_of(claim.asked)) if claim.asked else None
        amounts = amounts_text(sorted((amounts_held or {}).items()))
        devices = amounts if "@" in amounts else ""
        place = claim.won(self.world.now_ms, devices)
        for slot in place.slots:
            self._set(node.first + slot, False)
            self.leases[place.node, slot] = place
        self._give(node, place, -1)
        self._note_change(node, place)
        node.inbox.appendleft(place)
        return Verdict(ClaimOutcome.HELD, f"{place.since_ms} {devices}".rstrip())

    def _note_change(self, node: NodeRecord, place: Place) -> None:
        if amounts_of(place.asked):
            self.changed[node.name] = self.version + 1

    def release(self, keys: Sequence[str], args: Args) -> list[str]:
        """Free the leases of the places; return the rows whose place had no lease."""
        freed = self.free_leases(
            [Place.of(row.text) for row in args.rows], args.channel, args.partition
        )
        return [str(number) for number, done in enumerate(freed, 1) if not done]

    def free_leases(self, places: Sequence[Place], channel: str, number: str) -> list[bool]:
        """Release on values: return, per place, whether its lease existed and is freed.

        Tells the longest waiting scheduler of the freed slots. number: the partition.
        """
        was_freed = []
        usable_slots = 0
        for place in places:
            was_freed.append(self._holds(place))
            if not was_freed[-1]:
                continue
            node = self.nodes[place.node]
            for slot in place.slots:
                del self.leases[place.node, slot]
                usable = node.usable(slot)
                self._set(node.first + slot, usable)
                usable_slots += usable
            self._give(node, place, 1)
            self._note_change(node, place)
        self.version += any(was_freed)
        if usable_slots:
            self._tell_waiter(channel, number)
        return was_freed

    def read_partition(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Return bits and amounts, if anything has changed."""
        snapshot = self.read(0, int(args.version), args.waiter)
        reply: list[Any] = [snapshot.version, snapshot.epoch]
        if snapshot.bits is not None:
            reply += (
                snapshot.bits,
                int(snapshot.whole),
                "\n".join(snapshot.left),
                "\n".join(snapshot.left.values()),
            )
        return reply

    def read(self, number: int, version: int, waiter: str = "") -> Snapshot:
        """Read_partition on values: return the snapshot of this partition, `number`."""
        if waiter and waiter not in self.waiters:
            self.waiters.append(waiter)
        if self.version == version:
            return Snapshot(number, version, self.epoch, None, {})
        whole = not self.changed.get("", self.version) <= version <= self.version
        names = (name for name, changed_at in self.changed.items() if changed_at > version)
        changed_nodes = self._with_amounts if whole else [self.nodes[name] for name in names]
        amounts_left = {
            node.name: amounts_text(sorted(node.amounts_left.items())) for node in changed_nodes
        }
        return Snapshot(number, self.version, self.epoch, bytes(self.bits), amounts_left, whole)
