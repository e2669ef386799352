"""The baseline: the claims a second that a server judges in a bare Lua loop of HSETNX."""

import time
from typing import Final

from parsync_redis.store.server.connection import connect

from .processes import cpu_of

BATCH: Final = 100
BASELINE_SLOTS: Final = 10_000
_KEY: Final = "baseline:seats"
"""A key whose slot the first primary has, in a cluster of at most 16 primaries."""

_CLAIM_LOOP: Final = """
local won = 0
for i = 1, #ARGV do won = won + redis.call('HSETNX', KEYS[1], ARGV[i], 'x') end
return won
"""


def measure_baseline(url: str, pid: int, seconds: float = 1.0) -> tuple[float, float]:
    """Return the claims per second of a bare client, and its claims per second of server CPU.

    The client sends batches of 100, one after another. Every claim wins; when all slots are held,
    all are freed at once. pid: the server's process.
    """
    with connect(url) as client:
        script = client.register_script(_CLAIM_LOOP)
        slots = [f"n{number // 100}/{number % 100}" for number in range(BASELINE_SLOTS)]
        batches = [slots[first : first + BATCH] for first in range(0, BASELINE_SLOTS, BATCH)]
        claims = 0
        began_s = time.perf_counter()
        began_cpu_s = cpu_of(pid)
        while (taken_s := time.perf_counter() - began_s) < seconds:
            for batch in batches:
                claims += int(script(keys=[_KEY], args=batch))
            client.unlink(_KEY)
        cpu_s = cpu_of(pid) - began_cpu_s
    return round(claims / taken_s, 1), round(claims / cpu_s, 1) if cpu_s else 0.0
