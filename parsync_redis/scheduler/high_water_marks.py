"""High-water marks of numbers that only grow: one that went back shows that the server has lost writes.

It restarted without its last writes, or a replica took over that did not have them.
"""

from collections.abc import Mapping


class HighWaterMarks:
    """The highest value seen of each number, by name."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def see(self, numbers: Mapping[str, int]) -> list[str]:
        """Take in the numbers as they are now. Returns those that went back, as 'NAME=WAS->IS'."""
        back = [f"{name}={self._seen[name]}->{now}" for name, now in numbers.items() if now < self._seen.get(name, 0)]
        self._seen.update(numbers)
        return back
