"""The life of nodes in the store in memory. A method with `keys` and `args` is a script."""

from collections.abc import Sequence
from dataclasses import replace

from ...model.capacity import limits_slots, slots_given
from ...model.needs import parse_resources
from ...model.node import Notice
from ...model.place import Place
from .leases import Leases, NodeRecord
from .records import Args


class Registering(Leases):
    """The scripts that register, renew, reclaim, set and forget nodes."""

    def register_node(self, keys: Sequence[str], args: Args) -> list[int]:
        """Register a node for a process, as a new incarnation."""
        name = args.node
        room = int(args.room)
        old = self.nodes.get(name)
        offer = parse_resources(args.offer)
        free = self._free()
        leases = dict(self._leases_of(old)) if old else {}
        self.inc = max(self.inc, int(args.known_inc)) + 1
        node = NodeRecord(name, self.inc, args.score, offer, drain=old.drain if old else 0)
        node.ahead = 0 if room else None
        node.notice = old.notice if old and old.notice and not old.notice.of_process else None
        node.capacity = args.capacity
        node.span = max([offer.slots + room, *(slot + 1 for slot in leases)])
        self._count_left(node)
        if node.capacity:
            self._shut_slots(node)
        if old:
            for slot in range(old.span):
                self._set(old.first + slot, False)
        node.first = old.first if old and node.span <= old.span else self._gap(node)
        self.nodes[name] = node
        self._write_bits(node)
        if leases:
            self.lost.add(name)
        self._changed_nodes()
        self.changed.setdefault("", self.version)
        if self._free() > free:
            self._tell_waiter(args.channel, args.partition)
        return [node.inc, node.first]

    def renew(self, keys: Sequence[str], args: Args) -> list[str]:
        """Move the counter of a node's present process."""
        node = self.nodes.get(args.node)
        inc = int(args.inc)
        if node and node.inc > inc:
            return ["superseded", str(node.inc)]
        if node is None or node.inc != inc or node.state == "down":
            return ["lapsed"]
        node.moved += 1
        is_over = node.notice is not None and node.notice.over
        return ["ok", str(node.moved), node.state, "3" if is_over else str(node.drain)]

    def reclaim(self, keys: Sequence[str], args: Args) -> list[str]:
        """Mark a node down whose counter did not move; list the leases that nobody serves."""
        name = args.node
        moved = args.moved
        node = self.nodes.get(name)
        word = "listed"
        if node is None:
            self.lost.discard(name)
            return [word]
        if moved:
            word = "moved"
            if node.inc == int(args.inc) and node.state != "down" and node.moved == int(moved):
                word = node.state = "down"
                self._write_bits(node)
                self._changed_nodes()
        lost = [
            (slot, lease)
            for slot, lease in self._leases_of(node)
            if slot == lease.slot and (node.state == "down" or lease.inc != node.inc)
        ]
        (self.lost.add if lost else self.lost.discard)(name)
        return [
            word,
            *(w for slot, lease in lost[: int(args.limit)] for w in (str(slot), lease.text)),
        ]

    def set_node(self, keys: Sequence[str], args: Args) -> list[str]:
        """Change whether a node takes new claims."""
        name = args.node
        inc = args.inc
        word = args.word
        note = args.note
        node = self.nodes.get(name)
        if node is None or inc not in ("", str(node.inc)):
            return ["gone"]
        before = replace(node)
        free = self._free()
        stored_note = self.notes.get(name, "")
        note = note or ("no reason was given" if word == "suspect" else "no deadline")
        if word == "until":
            self._set_notice(node, int(note), inc)
        elif word == "over" and node.notice and node.notice.text == note:
            node.notice = node.notice._replace(over=True)
        elif word == "drain" and (node.drain, stored_note) != (2, note):
            node.drain = 1
            stored_note = note
        elif word == "over" and (node.drain, stored_note) == (1, note):
            node.drain = 2
        elif word == "undrain" or (word == "trust" and not node.drain):
            node.drain = 0
            node.notice = None if word == "undrain" else node.notice
            stored_note = ""
        elif word == "suspect" and (node.state, node.drain) == ("up", 0):
            node.state = "suspect"
            stored_note = note
        elif word == "ahead" and node.has_waiting_seats:
            node.ahead = int(note)
        elif word == "offer":
            score, _, words = note.partition(" ")
            head, _, offer = words.partition(" ")
            is_less = head.startswith("capacity=")
            capacity = head.removeprefix("capacity=") if is_less else ""
            offer = offer if is_less else words
            size = parse_resources(offer).slots
            if inc == "" or (node.has_waiting_seats and size + (node.ahead or 0) > node.span):
                return ["gone"]
            node.score = score
            node.offer = parse_resources(offer)
            node.capacity = capacity
            self._resize(node, before)
            self._count_left(node)
            node.state = "up" if node.state == "leaving" else node.state
        if before.state == "suspect" and word in ("drain", "undrain", "trust", "leaving"):
            node.state = "up"
        if word == "leaving" and node.state == "up":
            node.state = "leaving"
        self.notes[name] = stored_note
        if node != before:
            self._write_bits(node)
            if (
                replace(
                    node,
                    ahead=before.ahead,
                    capacity=before.capacity,
                    amounts_left=before.amounts_left,
                )
                == before
            ):
                self.version += 1
                if node.capacity != before.capacity:
                    self.changed[name] = self.version
            else:
                self._changed_nodes()
        if self._free() > free:
            self._tell_waiter(args.channel, args.partition)
        return ["ok", node.state, str(node.drain)]

    def ring(self, keys: Sequence[str], args: Args) -> str:
        """Ring the doorbell of a lease again, if the inbox is empty."""
        place = Place.of(args.text)
        if not self._holds(place):
            return "none"
        inbox = self.nodes[place.node].inbox
        if inbox:
            return "waiting"
        inbox.appendleft(place)
        return "rung"

    def forget_node(self, keys: Sequence[str], args: Args) -> str:
        """Remove the record of a node that is down and holds nothing."""
        node = self.nodes.get(args.node)
        if node is None:
            return "gone"
        if node.state != "down" or node.inc != int(args.inc):
            return "up"
        if any(True for _ in self._leases_of(node)):
            return "held"
        if args.how == "left" and (node.drain or (node.notice and not node.notice.of_process)):
            return "drained"
        del self.nodes[node.name]
        self.changed.pop(node.name, None)
        self.lost.discard(node.name)
        self.notes.pop(node.name, None)
        self._changed_nodes()
        return "forgotten"

    def _set_notice(self, node: NodeRecord, at_ms: int, inc: str) -> None:
        """Give a node a notice; withdraw it for 0, but by a process only what it told itself."""
        if not at_ms:
            if node.notice and (node.notice.of_process or not inc):
                node.notice = None
        elif not node.notice or node.notice.at_ms != at_ms:
            node.notice = Notice(at_ms, bool(inc))

    def _resize(self, node: NodeRecord, before: NodeRecord) -> None:
        """Adapt the span of a node without waiting seats to its offer, and shut some slots."""
        if node.has_waiting_seats:
            return
        size = node.offer.slots
        if size > node.span:
            node.span = size
            node.first = self._gap(node)
        if node.first != before.first:
            for slot in range(before.span):
                self._set(before.first + slot, False)
        self._shut_slots(node)

    def _shut_slots(self, node: NodeRecord) -> None:
        """Shut the last slots for which a node has no room.

        The open slots and what is held behind them are at most the capacity, in slots; without a
        capacity at most the slots, in tasks.
        """
        size = node.offer.slots
        limit = slots_given(node.offer, node.capacity)
        counting = {
            slot
            for slot, lease in self._leases_of(node)
            if slot == lease.slot or limits_slots(node.capacity)
        }
        fits = (n for n in range(limit, 0, -1) if n + sum(slot >= n for slot in counting) <= limit)
        shut = size - next(fits, 0)
        node.ahead = -shut if shut else None

    def _gap(self, node: NodeRecord) -> int:
        """Return the first bit of the first gap between other nodes that is long enough."""
        first = 0
        for neighbour in sorted(
            (n for n in self.nodes.values() if n.name != node.name), key=lambda n: n.first
        ):
            if neighbour.first - first >= node.span:
                break
            first = max(first, neighbour.first + neighbour.span)
        return first
