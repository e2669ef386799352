"""A booking: a node that the leader keeps for a task that has waited long."""

from dataclasses import dataclass

from .ids import decode_id, readable
from .kind import Kind, split_kind
from .needs import Resources, are_needs, parse_needs
from .text import BOOKING


@dataclass(frozen=True, slots=True)
class Booking:
    """The booking of a node.

    from_ms: when the node is expected to have room for the task (server time).
    task: the task's encoded id.
    at_ms: when the node was booked. Any task of the same kind may take the room, and the booking
        ends then.
    """

    node: str
    kind: str
    task: str
    from_ms: int
    at_ms: int = 0

    @property
    def text(self) -> str:
        """Return the field of `bookings`."""
        return BOOKING.write(since=self.from_ms, at=self.at_ms, task=self.task, kind=self.kind)

    @property
    def whom(self) -> str:
        """Return for whom the node is kept, for people: 'task a81f (big slots=8 for acme)'."""
        kind = split_kind(self.kind)
        tenant = f" for {kind.tenant}" if kind.tenant else ""
        return f"task {decode_id(self.task)} ({kind.name} {kind.needs}{tenant})"

    def bars(self, kind: Kind, run_ms: float | None, now_ms: int) -> bool:
        """Return True if tasks of a kind may not go to the booked node.

        Such a task would take slots or amounts that the booked kind waits for, and hold them beyond
        `from_ms`. An equal task of another tenant would, too. run_ms: the 95th percentile of the
        run times of the kind's name there; None if no run time is known, which counts as too long.
        """
        booked_kind = split_kind(self.kind)
        if (booked_kind.name, booked_kind.needs, booked_kind.tenant) == (
            kind.name,
            kind.needs,
            kind.tenant,
        ):
            return False
        return outlasts(run_ms, now_ms, self.from_ms) and starves(
            parse_needs(booked_kind.needs), kind.needs
        )


def outlasts(run_ms: float | None, now_ms: float, end_ms: float) -> bool:
    """Return whether a task that starts now may run beyond `end_ms`.

    run_ms: the 95th percentile of the run times of its name; None if no run time is known, which
        counts as too long.
    """
    return run_ms is None or now_ms + run_ms > end_ms


def starves(large: Resources, needs: str) -> bool:
    """Return whether tasks with these needs could keep a `large` task waiting for ever.

    large: the needs of that task. If it needs several slots, every task could. Otherwise tasks can
    that ask for less of the same resource, because the amount that each gives back is too little.
    """
    if large.slots > 1:
        return True
    amounts = dict(parse_needs(needs).amounts)
    return any(0 < amounts.get(name, 0) < amount for name, amount in large.amounts)


def read_booking(node: str, text: str) -> Booking | None:
    """Read a field of `bookings`; return None for any other text."""
    fields = BOOKING.read(text)
    if fields is None or not are_needs(split_kind(fields["kind"]).needs):
        return None
    return Booking(
        node, fields["kind"], fields["task"], int(fields["since"]), int(fields.get("at", 0))
    )


def read_bookings(fields: dict[bytes, bytes]) -> tuple[Booking, ...]:
    """Read the hash `bookings` in order of the nodes; leave out fields that are damaged."""
    bookings = [
        read_booking(readable(node), readable(text)) for node, text in sorted(fields.items())
    ]
    return tuple(booking for booking in bookings if booking)
