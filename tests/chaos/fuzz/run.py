"""Feeds cases to the entries: each is accepted, or refused by an error of ours with a message of
one line.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from parsync_redis import ParsyncClient
from parsync_redis.errors import ParsyncError
from parsync_redis.model.ids import shown
from tests.kit.oracle.audit import audit

from .entries import FuzzedEntry, entries

LOOK_EVERY = 2000
"""Cases after which every key is looked at, and the cluster begins anew."""

SERVED = ("client.", "apply_async", "command line")
"""Entries that reach the server: a refusal must leave no key behind."""


@dataclass(slots=True)
class Result:
    """The result of a run: cases, seconds and refusals by entry; the first failure in words, '' if
    there was none.
    """

    cases: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    refused: Counter[str] = field(default_factory=Counter)
    failure: str = ""


def judge(entry: FuzzedEntry, case: Any) -> tuple[str, bool]:
    """Return the fault in the answer to a case, '' for none; and whether the case was refused."""
    try:
        entry.feed(case)
    except TimeoutError:
        return "", False
    except entry.may_raise as error:
        if isinstance(error, ParsyncError) and (not str(error) or "\n" in str(error)):
            return f"its message is not one line: {error!r:.300}", True
        return "", True
    except Exception as error:
        return f"raised {type(error).__module__}.{type(error).__name__}: {error!s:.200}", True
    return "", False


def shrink(case: Any, fails: Callable[[Any], bool], tries: int = 300) -> Any:
    """Return a smaller case that fails as well: elements are left out, texts are halved."""
    for _ in range(tries):
        for smaller in _smaller(case):
            if fails(smaller):
                case = smaller
                break
        else:
            break
    return case


def _smaller(case: Any, depth: int = 0) -> Any:
    if depth > 6:
        return
    if isinstance(case, dict):
        for key in case:
            yield {other: value for other, value in case.items() if other != key}
        for key, value in case.items():
            yield from ({**case, key: less} for less in _smaller(value, depth + 1))
    elif isinstance(case, (list, tuple)):
        for at in range(len(case)):
            yield type(case)([*case[:at], *case[at + 1 :]])
        for at, value in enumerate(case):
            yield from (
                type(case)([*case[:at], less, *case[at + 1 :]])
                for less in _smaller(value, depth + 1)
            )
    elif isinstance(case, (str, bytes)) and len(case) > 1:
        yield case[: len(case) // 2]
        yield case[len(case) // 2 :]


def run(
    client: ParsyncClient,
    url: str,
    cases: int,
    seed: int,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Run so many cases; stop at the first failure.

    The server must have nothing but this cluster's keys.
    """
    logging.disable(logging.CRITICAL)
    result = Result()
    by_name = entries(client, url)
    names = [name for name, entry in by_name.items() for _ in range(entry.share)]
    store: Any = client.store
    for number in range(cases):
        rng = Random(f"{seed} {number}")
        name = rng.choice(names)
        entry = by_name[name]
        served = name.startswith(SERVED)
        case = entry.draw(rng)
        before = store.client.dbsize() if served else 0
        begin_s = time.perf_counter()
        wrong, refused = judge(entry, case)
        result.seconds[name] += time.perf_counter() - begin_s
        result.cases[name] += 1
        result.refused[name] += refused
        if (
            not wrong
            and refused
            and served
            and "many" not in name
            and store.client.dbsize() != before
        ):
            wrong = "it was refused, but keys were written"
        if wrong:
            small = shrink(
                case,
                lambda x, entry=entry, wrong=wrong: judge(entry, x)[0][:40] == wrong[:40],  # type: ignore[misc]
            )
            result.failure = f"seed {seed}, case {number}, {name}: {wrong}\n  input {shown(small)}"
            return result
        if number % LOOK_EVERY == LOOK_EVERY - 1 or number == cases - 1:
            if lost := look(client):
                result.failure = f"seed {seed}, before case {number}: {lost}"
                return result
            say(f"{number + 1} of {cases}")
    return result


def look(client: ParsyncClient) -> str:
    """Return the fault in the state, '' for none; then delete the state."""
    store: Any = client.store
    prefix = f"parsync:{{{client.settings.cluster}"
    foreign = [
        key
        for key in store.client.scan_iter(count=1000)
        if not key.decode(errors="replace").startswith(prefix)
    ]
    facts = audit(client.store)
    store.client.flushall()
    if foreign:
        return f"keys outside of the cluster: {foreign[:5]}"
    return "; ".join(facts[:5])
