"""Values that nobody expects, drawn from a random generator: a seed gives the same ones again."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

TEXTS = (
    "",
    " ",
    "a",
    "proj.render",
    "n1",
    "x" * 64,
    "x" * 129,
    "x" * 300,
    "a b",
    "a\nb",
    "a\0b",
    "\ud800",
    "ä",
    "日本",
    "{x}",
    "*",
    "1",
    "-1",
    "1e999",
    "nan",
    "4GiB",
    "1.5GB",
    "1 k",
    "99999999999999999999",
    "gpu",
    "gpu_model",
    "mem=1",
    "a=b",
    "a:b",
    "=",
    "slots",
    "latency",
    "quality",
    "true",
    "null",
    "[1]",
    "{}",
    "../x",
    "%s%n",
    "'; --",
    "--url",
    "2026-11-21T00:00:00",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    9,
    10,
    500,
    10_000,
    10_001,
    2**31,
    2**53 - 1,
    2**53,
    2**64,
    -(2**63),
    10**400,
    0.5,
    -0.0,
    1e14,
    1e308,
)
ODD = (None, True, False, float("nan"), float("inf"), float("-inf"), b"", b"\xff", b"x" * 70_000)


def text(rng: Random) -> str:
    if rng.random() < 0.8:
        return rng.choice(TEXTS)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x300))))
        for _ in range(rng.randrange(40))
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if levels % 2 else {"a": value}
    return value


ODDER = (
    object(),
    {1, 2},
    datetime(1, 1, 1, tzinfo=UTC),
    timedelta(1),
    deep(99),
    deep(150),
    deep(3000),
    datetime.fromisoformat("2026-01-01"),
    datetime.fromisoformat("0001-01-01"),
    datetime.fromisoformat("9999-12-31T23:59:59Z"),
    range(3),
    "x" * 3_000_000,
)


def value(rng: Random, depth: int = 0) -> Any:
    """Return anything."""
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 3:
        return text(rng)
    if kind < 6:
        return rng.choice(NUMBERS)
    if kind < 8:
        return rng.choice(ODD)
    if kind == 8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 9:
        return {
            (text(rng) if rng.random() < 0.9 else rng.choice(NUMBERS)): value(rng, depth + 1)
            for _ in range(rng.randrange(4))
        }
    if kind == 10:
        return tuple(value(rng, depth + 1) for _ in range(rng.randrange(3)))
    return rng.choice(ODDER if rng.random() < 0.5 else ODDER[:4])


def mostly(rng: Random, right: Callable[[], Any]) -> Any:
    """Return something that is right, or anything."""
    return right() if rng.random() < 0.7 else value(rng)


def mapping(rng: Random, names: Sequence[str]) -> dict[Any, Any]:
    """Return a mapping from some of these names, now and then of another, to anything."""
    found = {rng.choice(names): value(rng) for _ in range(rng.randrange(4))}
    if rng.random() < 0.1:
        found[text(rng)] = value(rng)
    return found


def needs(rng: Random) -> dict[str, Any]:
    """Return options of a task, more often right than wrong."""
    right: dict[str, Callable[[], Any]] = {
        "slots": lambda: rng.choice((1, 2, 4)),
        "resources": lambda: {"mem": rng.choice(("4GiB", 1, 0))},
        "require": lambda: {"zone": "a"},
        "priority": lambda: rng.randrange(10),
        "strategy": lambda: "latency",
        "prefer": lambda: ["zone=a", {"zone": {"a": 0, "b": 2}}, "pack"],
        "wait_for_capacity": lambda: True,
    }
    return {name: mostly(rng, make) for name, make in right.items() if rng.random() < 0.4}


def mangled(rng: Random, data: bytes) -> bytes:
    """Return bytes of which some were changed, left out, doubled or put in."""
    found = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            del found[at : at + rng.randrange(1, 20)]
        elif kind == 1:
            found[at:at] = rng.choice(
                (b"\xff", b"\0", b" ", b"9" * 30, b"[", b"}", b'"', b"=", b"-1", b"slots=", b"\n")
            )
        elif kind == 2 and at < len(found):
            found[at] = rng.randrange(256)
        elif kind == 3:
            found = found[:at]
        else:
            found[at:at] = found[: rng.randrange(30)]
    return bytes(found)


DOORBELL = b"a 1@1 p0 n1/0,1 inc=1 gpu=1 since=1795270000000"
MESSAGE = json.dumps(
    {
        "body": base64.b64encode(b"[[], {}, {}]").decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": "a", "id": "a"},
        "properties": {"body_encoding": "base64", "delivery_tag": "a"},
    }
).encode()
