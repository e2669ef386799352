"""Limits of rates. Pure: the caller says what time it is."""

from collections import OrderedDict
from typing import Final


class RateBucket:
    """A rate with a burst: the bucket holds at most `burst`, and gains `rate` a second.

    A bucket is full at first.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._since_s = 0.0

    def take(self, count: float, now_s: float) -> float:
        """Take `count`, and return 0.0.

        If there are too few, take none, and return the seconds until there are enough.

        count: at most the burst.
        now_s: the time in seconds, from any start.
        """
        self._left = min(self._burst, self._left + max(0.0, now_s - self._since_s) * self._rate)
        self._since_s = now_s
        if self._left < count:
            return (count - self._left) / self._rate
        self._left -= count
        return 0.0


MOST_ADDRESSES: Final = 1000
"""Maximum number of addresses in memory; beyond, the longest silent address is forgotten."""


class Attempts:
    """Limits the attempts to log in, per address and in all.

    per_address, in_all: attempts per minute, which may also come at once.
    """

    def __init__(self, per_address: int, in_all: int) -> None:
        self._per_address = per_address
        self._in_all = RateBucket(in_all / 60, in_all)
        self._by_address: OrderedDict[str, RateBucket] = OrderedDict()

    def take(self, address: str, now_s: float) -> float:
        """Count an attempt, and return 0.0.

        If no attempt is allowed now, return the seconds until one is allowed.
        """
        bucket = self._by_address.pop(address, None) or RateBucket(
            self._per_address / 60, self._per_address
        )
        self._by_address[address] = bucket
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        return bucket.take(1, now_s) or self._in_all.take(1, now_s)
