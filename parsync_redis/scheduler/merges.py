"""Count merged claims: those that won although their partition had changed since the scheduler read it."""

from ..model.replies import Judged, Snapshot


class Merges:
    """The version of each partition of which the scheduler's copy knows every change, its own ones as well."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take in a partition that was read."""
        self._known[snapshot.partition] = snapshot.version

    def is_current(self, judged: Judged, won: int) -> bool:
        """Return True if the scheduler knew every change before a commit of which `won` claims won: none is merged.

        A commit in which some claim won moves the version on by one.
        """
        known = self._known.get(judged.partition, -1) + (won > 0)
        self._known[judged.partition] = known  # changes of others are unknown until the partition is read
        return known == judged.version
