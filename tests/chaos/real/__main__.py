"""Layers 3 and 4 of the chaos by hand: `python -m tests.chaos.real run|throughput|soak|rate`; see
docs/chaos.md.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.kit import reaper
from tests.kit.rate import Rate, most_above, part_of_rate, take_at_rate

from .failover import failover
from .moves import move_slots
from .pace import soak, throughput
from .play import Outcome, play
from .several_storm import play_several

SHOWN = 20


def run(args: argparse.Namespace) -> int:
    """Return the storm; 1 if a promise broke."""
    folder = args.folder or Path("build", "chaos", str(args.seed))
    whole = args.seconds, args.seed, folder, say, args.every, args.rate
    if args.servers == "one":
        return tell(play(*whole), args.seed, folder)
    return tell(play_several(*whole, loses=args.servers == "lagging"), args.seed, folder)


def run_failover(args: argparse.Namespace) -> int:
    """Have primaries go away; 1 if a promise broke."""
    folder = args.folder or Path("build", "chaos", "failover")
    return tell(
        failover(args.kills, args.seed, folder, say, args.how, args.rate), args.seed, folder
    )


def run_moves(args: argparse.Namespace) -> int:
    """Move slots; 1 if a promise broke, or a submitter saw an error."""
    folder = args.folder or Path("build", "chaos", "moves")
    return tell(move_slots(args.moves, args.seed, folder, say, args.rate), args.seed, folder)


def tell(outcome: Outcome, seed: int, folder: Path) -> int:
    """Print figures and broken promises; return 1 if there are some."""
    for name, value in outcome.figures.items():
        print(f"  {name:20} {value}")
    for what in outcome.broken[:SHOWN]:
        print(f"seed {seed}: {what}")
    if len(outcome.broken) > SHOWN:
        print(f"... and {len(outcome.broken) - SHOWN} more")
    print(json.dumps({"seed": seed, "broken": len(outcome.broken), **outcome.figures}))
    if outcome.broken:
        print(
            f"seed {seed}: {len(outcome.broken)} broken promises; what everybody did is in {folder}"
        )
    return int(bool(outcome.broken))


def run_throughput(args: argparse.Namespace) -> int:
    """Measure throughput under kills; 1 if a task was lost."""
    figures = throughput(
        args.seconds, args.seed, args.folder or Path("build", "chaos", "throughput"), say
    )
    show(figures)
    return int(figures["lost"] > 0)


def run_soak(args: argparse.Namespace) -> int:
    """Return memory over time; 1 if a process ended by itself."""
    figures = soak(args.minutes, args.seed, args.folder or Path("build", "chaos", "soak"), say)
    show(figures)
    return int(figures["ended_by_themselves"] > 0)


def run_rate(args: argparse.Namespace) -> int:
    """Take tasks under a rate; 1 if a window had more than it allows."""
    rate = Rate(args.number, 60_000, args.burst)
    with EmbeddedServer() as server:
        store = Store.from_url(server.url, "rate")
        takes = take_at_rate(store, rate, 60 * args.minutes)
        store.client.close()
    above = most_above(takes, rate)
    show(
        {
            "rate": rate.ceiling,
            "minutes": args.minutes,
            "tasks": sum(take.count for take in takes),
            "most_above_in_a_window": round(above, 3),
            "part_of_rate": round(part_of_rate(takes, rate), 4),
        }
    )
    return int(above > 0.01)


def show(figures: dict[str, Any]) -> None:
    """Print figures for people, and a line of JSON."""
    for name, value in figures.items():
        print(f"  {name:20} {value}")
    print(json.dumps(figures))


def say(line: str) -> None:
    """Print progress."""
    print(line, flush=True)


def main() -> int:
    """Return the command line."""
    reaper.watch()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.real", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    storm = verbs.add_parser("run", help="random faults on a whole stack")
    storm.add_argument("--seconds", type=float, default=300)
    storm.add_argument(
        "--every", type=float, default=1.0, help="seconds from fault to fault, about"
    )
    storm.add_argument("--rate", type=float, default=12.0, help="tasks a second")
    storm.add_argument(
        "--servers",
        choices=("one", "cluster", "lagging"),
        default="one",
        help="one; three primaries that are killed, and whose slots move; or three primaries that "
        "are killed while their replicas lag, so that acknowledged writes are lost",
    )
    storm.set_defaults(do=run)
    pace = verbs.add_parser(
        "throughput", help="tasks a second while processes are killed / undisturbed"
    )
    pace.add_argument("--seconds", type=float, default=60, help="of each of its four phases")
    pace.set_defaults(do=run_throughput)
    long = verbs.add_parser("soak", help="memory at seventy in a hundred of what it can do")
    long.add_argument("--minutes", type=float, default=20)
    long.set_defaults(do=run_soak)
    over = verbs.add_parser(
        "failover", help="primaries of a cluster of servers go away, one after the other"
    )
    over.add_argument("--kills", type=int, default=8)
    over.add_argument("--how", choices=("kill", "stop", "lag", "mixed"), default="mixed")
    over.add_argument("--rate", type=float, default=30.0, help="tasks a second")
    over.set_defaults(do=run_failover)
    moves = verbs.add_parser(
        "move-slots", help="slots of a cluster of servers are moved under load"
    )
    moves.add_argument("--moves", type=int, default=40)
    moves.add_argument("--rate", type=float, default=30.0, help="tasks a second")
    moves.set_defaults(do=run_moves)
    rated = verbs.add_parser("rate", help="tasks that start under a rate, beside what it allows")
    rated.add_argument("--number", type=int, default=100, help="tasks a minute")
    rated.add_argument("--burst", type=int, default=10)
    rated.add_argument("--minutes", type=float, default=10)
    rated.set_defaults(do=run_rate)
    for verb in (storm, pace, long, over, moves):
        verb.add_argument("--seed", type=int, default=1)
        verb.add_argument(
            "--folder", type=Path, help="where everything is written down; a folder in build/chaos"
        )
    args = parser.parse_args()
    # so that the stack is stopped
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return args.do(args)


if __name__ == "__main__":
    sys.exit(main())
