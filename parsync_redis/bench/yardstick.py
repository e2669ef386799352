"""The yardstick: how many claims a second a server judges if it does nothing else: a bare Lua loop of HSETNX."""

import time
from typing import Final

from .wire import Wire, pack

BATCH: Final = 100
SLOTS: Final = 10_000
AT_ONCE: Final = 10
_KEY: Final = "bench:yardstick"
_LOOP: Final = """
local won = 0
for i = 1, #ARGV do won = won + redis.call('HSETNX', KEYS[1], ARGV[i], 'x') end
return won
"""


def measure_yardstick(url: str, seconds: float = 1.0) -> float:
    """Claims/s of one client, in batches of 100, ten batches in flight; every claim wins, then all slots are freed."""
    wire = Wire(url)
    try:
        slots = [f"n{number // 100}/{number % 100}" for number in range(SLOTS)]
        calls = [pack([("EVAL", _LOOP, 1, _KEY, *slots[at : at + BATCH])]) for at in range(0, SLOTS, BATCH)]
        rounds = [b"".join(calls[at : at + AT_ONCE]) for at in range(0, len(calls), AT_ONCE)]
        empty = pack([("UNLINK", _KEY)])
        claims, began_s = 0, time.perf_counter()
        while (taken_s := time.perf_counter() - began_s) < seconds:
            claims += sum(sum(wire.ask(one, AT_ONCE)) for one in rounds)
            wire.ask(empty, 1)
        return round(claims / taken_s, 1)
    finally:
        wire.close()
