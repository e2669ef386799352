"""High-water marks: numbers that only grow, as one scheduler saw them last. One that went back was forgotten by the
server: it restarted without its last writes, or another one took over that had not got them.
"""

from collections.abc import Mapping


class HighWaterMarks:
    """The numbers by name."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def see(self, numbers: Mapping[str, int]) -> list[str]:
        """Takes in what the numbers are now; those that went back as 'NAME=WAS->IS'."""
        back = [f"{name}={self._seen[name]}->{now}" for name, now in numbers.items() if now < self._seen.get(name, 0)]
        self._seen.update(numbers)
        return back
