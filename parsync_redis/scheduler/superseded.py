"""Nodes that registered anew while earlier processes of theirs held leases: when those processes have surely ended.

A process that was superseded cannot renew its lease any more. Its guard ends it within a lease of its last renewal, but
until then it may run its tasks. So its leases are cleared a lease after the new registration was seen.
"""

from collections.abc import Callable, Hashable, Mapping


class Superseded:
    """The registrations that one observer has seen. All times are seconds of its monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen_s: dict[Hashable, dict[int, float]] = {}  # node -> its incarnations -> when each was seen first

    def reset(self, of: Callable[[Hashable], bool] = lambda _: True) -> None:
        """Forget what was seen of these nodes: a server that lost its last writes may give an incarnation again."""
        self._seen_s = {node: seen_s for node, seen_s in self._seen_s.items() if not of(node)}

    def look(self, now_s: float, incs: Mapping[Hashable, int]) -> dict[Hashable, int]:
        """Take in the present incarnation of each such node, and forget the others.

        Returns, by node, the newest incarnation that was seen a lease ago: all processes before it have ended.
        """
        self._seen_s = {node: self._seen_s.get(node, {}) for node in incs}
        ended: dict[Hashable, int] = {}
        for node, inc in incs.items():
            seen_s = self._seen_s[node]
            seen_s.setdefault(inc, now_s)
            old = [one for one, at_s in seen_s.items() if now_s - at_s >= self._lease_s]
            if old:
                ended[node] = max(old)
                self._seen_s[node] = {one: at_s for one, at_s in seen_s.items() if one >= max(old)}
        return ended
