"""`make fuzz`: python -m tests.chaos.fuzz --cases 100000 --seed 1; exit code 1 at the first case
not answered well.
"""

import argparse
import sys
import time

from parsync_redis import ParsyncClient
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import reaper

from .run import run


def main() -> int:
    """Run the cases, and print how many a second each entry took."""
    reaper.watch()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fuzz")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    begin_s = time.monotonic()
    with EmbeddedServer() as server, ParsyncClient.from_url(server.url, "fuzz") as client:
        result = run(
            client, server.url, asked.cases, asked.seed, lambda line: print(line, file=sys.stderr)
        )
    print(f"{'entry':<20}{'cases':>8}{'refused':>9}{'cases/s':>9}")
    for name, cases in sorted(result.cases.items()):
        print(
            f"{name:<20}{cases:>8}{result.refused[name]:>9}{cases / max(result.seconds[name], 1e-9):>9.0f}"
        )
    total = sum(result.cases.values())
    print(
        f"{total} cases, seed {asked.seed}, {time.monotonic() - begin_s:.0f} s: "
        f"{result.failure or 'all answered well'}"
    )
    return 1 if result.failure else 0


if __name__ == "__main__":
    raise SystemExit(main())
