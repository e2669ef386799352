"""Actions that are due again and again."""

from collections.abc import Callable


class Every:
    """An action that is due at once, and again when more than `seconds` have passed. It is given the time."""

    def __init__(self, seconds: float, action: Callable[[float], None]) -> None:
        self.seconds, self._action = seconds, action
        self.last_s = float("-inf")

    def run_if_due(self, now_s: float) -> None:
        """Run the action if it is due; after an exception it is due again in `seconds`."""
        if now_s - self.last_s > self.seconds:
            self.last_s = now_s
            self._action(now_s)
