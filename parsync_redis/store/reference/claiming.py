"""Commit, release and read in the store in memory. A method with `keys` and `args` is a script; judge_claims,
free_leases and read are the same on values, because the simulator calls them a thousand times a second.
"""

from collections.abc import Sequence
from typing import Any

from ...model.claim import Claim, ClaimOutcome, Verdict
from ...model.needs import parse_resources
from ...model.place import Place
from ...model.replies import Snapshot
from ...placement.fits import fits
from .leases import LeaseRecord, Leases, amounts_text
from .records import Args


class Claiming(Leases):
    """Judge claims, free leases and read snapshots."""

    def commit(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Judge each claim by itself; the first claim wins."""
        claims = [
            Claim(r.task, r.attempt, 0, r.node, int(r.inc), tuple(map(int, r.slots.split(","))), r.needs)
            for r in args.rows
        ]
        verdicts = self.judge_claims(claims)
        return [self.version, str(self.world.now_ms), *(part for v in verdicts for part in (v.word.value, v.detail))]

    def judge_claims(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Commit: return a verdict per claim, and hold what is won."""
        verdicts = [self.judge(claim) or self._hold(claim) for claim in claims]
        self.version += any(verdict.word is ClaimOutcome.HELD for verdict in verdicts)
        return verdicts

    def judge(self, claim: Claim) -> Verdict | None:
        """Return why a claim gets nothing new; None if it would be held."""
        node = self.nodes.get(claim.node)
        if node is None:
            return Verdict(ClaimOutcome.GONE, "")
        for slot in claim.slots:
            if slot >= node.span or not self._get(node.first + slot):
                lease = self.leases.get((claim.node, slot))
                if lease and (lease.task, lease.attempt, lease.inc) == (claim.task, claim.attempt, node.inc):
                    return Verdict(ClaimOutcome.YOURS, str(lease.since_ms))
                return Verdict(ClaimOutcome.CONFLICT, lease.task if lease else "")
        if node.inc != claim.inc:
            return Verdict(ClaimOutcome.CHANGED, str(node.inc))
        needs = parse_resources(claim.needs)
        if not fits(node.offer, needs):
            return Verdict(ClaimOutcome.SHORT, node.offer.text)
        if any(node.left.get(resource, 0) < amount for resource, amount in needs.amounts):
            return Verdict(ClaimOutcome.SHORT, amounts_text(node.left))
        return None

    def _hold(self, claim: Claim) -> Verdict:
        node, amounts = self.nodes[claim.node], parse_resources(claim.needs).amounts
        since_ms = self.world.now_ms
        lease = LeaseRecord(claim.task, claim.attempt, claim.inc, since_ms, claim.slots, amounts, claim.slots[0])
        for slot in claim.slots:
            self._set(node.first + slot, False)
            self.leases[claim.node, slot] = lease
        self._give(node, amounts, -1)
        node.inbox.appendleft(lease)
        return Verdict(ClaimOutcome.HELD, str(since_ms))

    def release(self, keys: Sequence[str], args: Args) -> list[str]:
        """Free exactly the leases that are meant."""
        places = [Place(r.task, r.attempt, 0, r.node, int(r.slot), int(r.inc), 0) for r in args.rows]
        return ["freed" if freed else "none" for freed in self.free_leases(places, args.channel, args.partition)]

    def free_leases(self, places: Sequence[Place], channel: str, number: str) -> list[bool]:
        """Release: return whether each lease existed and is freed; tell one that waits for partition `number`."""
        done, freed = [], 0
        for place in places:
            lease = self._lease_at(place)
            done.append(lease is not None)
            if lease is None:
                continue
            node = self.nodes[place.node]
            for slot in lease.slots:
                del self.leases[place.node, slot]
                usable = node.usable(slot)
                self._set(node.first + slot, usable)
                freed += usable
            self._give(node, lease.amounts, 1)
        self.version += any(done)
        if freed and self.waiters:
            free = sum(byte.bit_count() for byte in self.bits)
            slots = sum(node.offer.slots for node in self.nodes.values())
            self.world.publish(f"{channel}:{self.waiters.pop(0)}", f"freed {number} {free} {slots}")
        return done

    def read_partition(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Return bits and amounts, if anything changed."""
        found = self.read(0, int(args.version), args.waiter)
        reply: list[Any] = [found.version, found.epoch]
        if found.bits is not None:
            reply += (found.bits, *(word for pair in found.left.items() for word in pair))
        return reply

    def read(self, number: int, version: int, waiter: str = "") -> Snapshot:
        """Read_partition: return the snapshot of this partition, `number`."""
        if waiter and waiter not in self.waiters:
            self.waiters.append(waiter)
        if self.version == version:
            return Snapshot(number, version, self.epoch, None, {})
        left = {node.name: amounts_text(node.left) for node in self._with_amounts}
        return Snapshot(number, self.version, self.epoch, bytes(self.bits), left)
