"""Rates: how much may happen in a while. Pure; the caller says what time it is."""

from collections import OrderedDict
from typing import Final


class RateBucket:
    """A rate with a burst: it holds `burst` at most, and `rate` a second flow in.

    It begins full.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._since_s = 0.0

    def take(self, count: float, now_s: float) -> float:
        """Take so many and return 0.0; or take none, and return after how many seconds there will
        be enough.

        count: at most the burst.
        """
        self._left = min(self._burst, self._left + max(0.0, now_s - self._since_s) * self._rate)
        self._since_s = now_s
        if self._left < count:
            return (count - self._left) / self._rate
        self._left -= count
        return 0.0


MOST_ADDRESSES: Final = 1000
"""Addresses that are remembered; of more, the one that was heard of least recently is forgotten."""


class Attempts:
    """Bounds the attempts to log in: of each address, and of all together.

    A minute gives back what it allows.
    """

    def __init__(self, each: int, all: int) -> None:
        self._each = each
        self._all = RateBucket(all / 60, all)
        self._of: OrderedDict[str, RateBucket] = OrderedDict()

    def take(self, address: str, now_s: float) -> float:
        """Count an attempt and return 0.0; or return after how many seconds the next one is
        allowed.
        """
        bucket = self._of.pop(address, None) or RateBucket(self._each / 60, self._each)
        self._of[address] = bucket
        while len(self._of) > MOST_ADDRESSES:
            self._of.popitem(last=False)
        return bucket.take(1, now_s) or self._all.take(1, now_s)
