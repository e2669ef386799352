"""The won claims of a scheduler that are not confirmed yet."""

from collections.abc import Iterable

from ..model.limits import MAX_BATCH
from ..model.place import Place


class WonClaims:
    """Won claims, in the order in which they were won. A worker that starts a task confirms it as well."""

    def __init__(self) -> None:
        self.unconfirmed: list[Place] = []
        self._due = 0  # how many of them were won before the last look at them

    @property
    def due(self) -> list[Place]:
        """The won claims that had been won when `confirmed` was called last."""
        return self.unconfirmed[: self._due]

    def confirmed(self, count: int, but: Iterable[Place] = ()) -> None:
        """Drop the first `count`, `but` some; those that are left are due to confirm the next time."""
        self.unconfirmed[:count] = but
        self._due = len(self.unconfirmed)

    def take(self) -> list[Place]:
        """Return the first MAX_BATCH, and drop them: a plan confirms them."""
        found, self.unconfirmed = self.unconfirmed[:MAX_BATCH], self.unconfirmed[MAX_BATCH:]
        self._due = max(0, self._due - MAX_BATCH)
        return found
