"""Layers 3 and 4 of the chaos by hand: `python -m tests.chaos.real run`; see docs/chaos.md."""

import argparse
import json
import sys
from pathlib import Path

from .play import play

SHOWN = 20


def run(args: argparse.Namespace) -> int:
    """The storm; 1 if a promise broke."""
    folder = args.folder or Path("build", "chaos", str(args.seed))
    outcome = play(args.seconds, args.seed, folder, lambda line: print(line, flush=True), args.every, args.rate)
    for name, value in outcome.figures.items():
        print(f"  {name:20} {value}")
    for what in outcome.broken[:SHOWN]:
        print(f"seed {args.seed}: {what}")
    if len(outcome.broken) > SHOWN:
        print(f"... and {len(outcome.broken) - SHOWN} more")
    print(json.dumps({"seed": args.seed, "broken": len(outcome.broken), **outcome.figures}))
    if outcome.broken:
        print(f"seed {args.seed}: {len(outcome.broken)} broken promises; what everybody did is in {folder}")
    return int(bool(outcome.broken))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.real", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    storm = verbs.add_parser("run", help="random faults on a whole stack")
    storm.add_argument("--seconds", type=float, default=300)
    storm.add_argument("--seed", type=int, default=1)
    storm.add_argument("--every", type=float, default=1.0, help="seconds from fault to fault, about")
    storm.add_argument("--rate", type=float, default=12.0, help="tasks a second")
    storm.add_argument("--folder", type=Path, help="where everything is written down; build/chaos/SEED")
    storm.set_defaults(do=run)
    args = parser.parse_args()
    return args.do(args)


if __name__ == "__main__":
    sys.exit(main())
