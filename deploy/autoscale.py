"""Start and stop machines of one kind by what waits for them. Needs Python only.

    autoscale.py 'http://127.0.0.1:8787/api/v1/demand?slots=4&label=gpu_model=a100' \\
        --most 10 -- ./resize.sh

It runs the command with the number of machines as its last argument, whenever that number changes.
More machines are asked for at once, fewer only when fewer were enough for --calm seconds, also
after a start: until it has run the command, it takes the nodes that there are for the machines. If
there is no answer, nothing changes.
"""

import argparse
import http.client
import json
import subprocess
import sys
import time
import urllib.request


def ask(url: str) -> tuple[int, int]:
    """Return the number of machines that are wanted, and the number of nodes that there are."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  the operator's own URL
        demand = json.load(answer)
    machines = demand["machines"]
    nodes = demand["nodes"]
    if machines is None:
        sys.exit("the URL describes no machine: add slots=, resource= or label=")
    return int(machines), int(nodes)


def main() -> None:
    """Ask again and again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--most", type=int, required=True)
    parser.add_argument("--every", type=float, default=15, help="seconds between two questions")
    parser.add_argument(
        "--calm", type=float, default=300, help="seconds for which fewer machines must be enough"
    )
    parser.add_argument(
        "--once", action="store_true", help="ask once, run the command, and end as it does"
    )
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    machines_set: int | None = None
    enough_since_s = time.monotonic()
    while True:
        try:
            machines, nodes = ask(options.url)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            print(f"no answer, nothing changes: {error!r}", file=sys.stderr)
            if options.once:
                sys.exit(1)
            wanted = now = 0
        else:
            wanted = min(max(machines, options.least), options.most)
            now = nodes if machines_set is None else machines_set
        if wanted >= now:
            enough_since_s = time.monotonic()
        if (
            options.once
            or wanted > now
            or (wanted < now and time.monotonic() - enough_since_s >= options.calm)
        ):
            ended = subprocess.run([*options.command, str(wanted)], check=False)
            if options.once:
                sys.exit(ended.returncode)
            if ended.returncode == 0:
                machines_set = wanted
                enough_since_s = time.monotonic()
        time.sleep(options.every)


if __name__ == "__main__":
    main()
