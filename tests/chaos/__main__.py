"""Layer 1 of the chaos harness by hand: `python -m tests.chaos [many|replay|mutants]`; see
docs/chaos.md.
"""

import argparse
import logging
import sys
import time
from collections import Counter

from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import reaper

from .schedule import SHARDS, Schedule, of_text, run_schedule, to_text
from .shrink import shrink
from .wire import Scripts


def many(count: int, seed: int, keep_going: bool = False, shards: int = 1) -> int:
    """Play `count` schedules; stop at the first that breaks a promise, and shrink it."""
    coverage: Counter[str] = Counter()
    failed = 0
    begun_s = time.monotonic()
    with EmbeddedServer() as server, connect(server.url) as client:
        scripts = Scripts()
        for number in range(seed, seed + count):
            violation, reached = run_schedule(client, scripts, Schedule(number, shards=shards))
            coverage += reached
            if (number - seed + 1) % 100 == 0:
                print(
                    f"{number - seed + 1} schedules, {time.monotonic() - begun_s:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
            if violation is not None:
                print(f"seed {number}: {violation}", flush=True)
                failed += 1
                if keep_going:
                    continue
                steps, violation = shrink(
                    client, scripts, Schedule(number, shards=shards), violation
                )
                log: list[str] = []
                run_schedule(client, scripts, Schedule(number, steps, shards), log)
                print("\n".join(log))
                print(f"\nseed {number}, {len(steps)} steps: {violation}")
                several = " --cluster" if shards > 1 else ""
                print(
                    f"again: python -m tests.chaos replay{several} --seed {number} --steps "
                    f"'{to_text(steps)}'"
                )
                return 1
    took_s = time.monotonic() - begun_s
    print_coverage(coverage, count)
    verdict = f"{failed} violations" if failed else "no violation"
    print(f"{count} schedules from seed {seed}: {verdict} ({count / took_s:.1f}/s)")
    return int(failed > 0)


def print_coverage(coverage: Counter[str], count: int) -> None:
    """Print what was reached, per schedule."""
    for what, often in sorted(coverage.items()):
        print(f"  {what:32} {often:9d} {often / count:9.2f} a schedule")


def replay(seed: int, steps: str, shards: int = 1) -> int:
    """Play one schedule and print all that happened."""
    log: list[str] = []
    with EmbeddedServer() as server, connect(server.url) as client:
        schedule = Schedule(seed, of_text(steps) if steps else None, shards)
        violation, _ = run_schedule(client, Scripts(), schedule, log)
    print("\n".join(log))
    print(f"seed {seed}: {violation or 'no violation'}")
    return int(violation is not None)


def main() -> int:
    """Return the command line."""
    logging.disable(logging.CRITICAL)
    reaper.watch()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("what", choices=("many", "replay", "mutants"))
    parser.add_argument("--count", "-n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", default="")
    parser.add_argument("--only", default="", help="mutants: those whose name contains this")
    parser.add_argument(
        "--keep-going", action="store_true", help="many: name every seed that fails, shrink none"
    )
    parser.add_argument("--cluster", action="store_true", help="many, replay: on several primaries")
    args = parser.parse_args()
    shards = SHARDS if args.cluster else 1
    if args.what == "many":
        return many(args.count, args.seed, args.keep_going, shards)
    if args.what == "replay":
        return replay(args.seed, args.steps, shards)
    from .mutants import hunt_all

    return hunt_all(args.count, args.seed, args.only)


if __name__ == "__main__":
    sys.exit(main())
