"""Hash slots of shards and partitions are moved from primary to primary while tasks run."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from parsync_redis.client.requests import CLIENT_RETRY_FOR_S
from parsync_redis.store.server.embedded import EmbeddedServer, find_wheel
from tests.kit.moving import Move, can_move_at_once, other_primaries

from .failover import Several, drain, several_at_work
from .outage import pauses
from .play import Outcome, Say, events_of, note_deaths, percentiles
from .several import SeveralStack

QUIET_S: Final = 5.0
BETWEEN_S: Final = 0.3


def move_slots(moves: int, seed: int, folder: Path, say: Say, rate: float = 30.0) -> Outcome:
    """Run the stack, move the slots of shards, of partitions and of the cluster's own keys, and
    check everything.

    A slot moves key by key, as redis-cli moves it, and all at once where the server can. No
    submitter may see an error.
    """
    outcome = Outcome()
    begun_s = time.monotonic()
    dice = random.Random(seed)
    stack = SeveralStack(folder, seed, program=find_wheel())
    with several_at_work(stack, rate, patience_s=CLIENT_RETRY_FOR_S) as field:
        quiet_s = time.monotonic()
        field.pass_time(QUIET_S)
        spans = list[tuple[float, float]]()
        counts = Counter[str]()
        at_once = can_move_at_once(stack.several)
        for number in range(moves):
            how = "at once" if at_once and number % 2 else "key by key"
            what = move_one(field, dice, how)
            counts[how] += 1
            spans.append((field_s := time.monotonic(), field_s))
            say(f"{field_s - begun_s:7.1f} s  {what}")
            field.pass_time(BETWEEN_S)
        moved = spans[0][0] if spans else quiet_s, time.monotonic()
        drain(field, outcome, say)
        _figures(field, counts, (quiet_s, quiet_s + QUIET_S), moved, outcome)
    note_deaths(stack, outcome, begun_s, say)
    return outcome


def draw(field: Several, dice: random.Random) -> str:
    """Return a key of a shard, of a partition, or of the cluster as a whole."""
    keys = field.store.keys
    stack = field.stack
    kinds: Sequence[Callable[[], str]] = (
        lambda: keys.queue("meta", dice.randrange(keys.shards)),
        lambda: keys.partition(dice.randrange(stack.partitions), "meta"),
        lambda: keys.shared("config"),
    )
    return dice.choices(kinds, (5, 4, 1))[0]()


def move_one(field: Several, dice: random.Random, how: str) -> str:
    """Move the slot of a key to another primary, `at once` or `key by key`; return what moved."""
    key = draw(field, dice)
    move = Move(field.stack.several, key, dice.choice(others(field, key)))
    (Move.at_once if how == "at once" else in_pieces)(move)
    return f"{key.rpartition(':')[0]} to {move.target.port}, {how}"


def others(field: Several, key: str) -> list[EmbeddedServer]:
    """Return the primaries that do not have this key."""
    cluster = field.stack.several
    return other_primaries(cluster, cluster.primary_of(key))


def in_pieces(move: Move) -> None:
    """Move a slot a few keys at a time, with pauses in which its scripts find it in two places."""
    move.begin()
    time.sleep(0.02)
    while move.carry(3):
        time.sleep(0.01)
    move.end()


def _figures(
    field: Several,
    counts: Counter[str],
    quiet: tuple[float, float],
    moved: tuple[float, float],
    outcome: Outcome,
) -> None:
    errors = sum(field.book.errors.values())
    events = list(events_of(field.stack.folder))
    groups = [frozenset([p]) for p in range(field.stack.partitions)]
    lost = outcome.figures.pop("lost_copied") + outcome.figures.pop("lost_uncopied")
    for name in ("lost_untold", "exempt"):
        del outcome.figures[name]
    outcome.broken += [
        f"a submitter saw {count} of {error}" for error, count in field.book.errors.items()
    ]
    outcome.figures |= {
        "moves": dict(counts),
        "lost": lost,
        "submit_errors": errors,
        "partition_pause_before_s": percentiles(pauses(events, groups, [quiet])),
        "partition_pause_s": percentiles(pauses(events, groups, [moved])),
    }
