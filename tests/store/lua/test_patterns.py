"""Every pattern of Lua takes time in proportion to the text: a script runs alone on its server.

Each pattern in lua/ is tried on texts that nearly match it, of 4 kB, and of less if that takes
long: for each repeated item of the pattern the shortest text that matches all before, then the
item's own characters, then one that fails; and the same for whole repetitions. The server measures
the time of its scripts.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import redis

from parsync_redis.store.scripts.scripts import lua_folder
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.offenders import none_wrong

FUNCTIONS = re.compile(r"string\.(find|match|gmatch|gsub)\(")
LITERAL = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
SIZES = 256, 1024, 4 * 1024
NOTICED_US = 1500
"""The most that a pattern may take, whatever its growth: quadratic time is ten times as much."""

RUN = """
local text, pattern = ARGV[2], ARGV[3]
if ARGV[1] == 'gmatch' then
  for _ in string.gmatch(text, pattern) do end
elseif ARGV[1] == 'gsub' then
  string.gsub(text, pattern, '')
else
  string.find(text, pattern)
end
return 1
"""


def patterns() -> Iterator[tuple[str, str, str]]:
    """Yield (file, function, pattern) of each call with a pattern that is not plain."""
    for path in sorted(lua_folder().rglob("*.lua")):
        text = re.sub(r"--.*", "", path.read_text())
        for found in FUNCTIONS.finditer(text):
            inside = arguments(text, found.end())
            if "true" in inside[3:] or len(inside) < 2:
                continue
            for literal in LITERAL.findall(inside[1]):
                yield path.stem, found[1], literal.encode().decode("unicode_escape")


def arguments(text: str, start: int) -> list[str]:
    """Return the arguments of a call, of which the bracket is before `start`."""
    depth = 1
    found = []
    at = start
    begin = start
    while depth:
        if text[at] == "'":
            at = LITERAL.match(text, at).end() - 1  # type: ignore[union-attr]
        elif text[at] in "({":
            depth += 1
        elif text[at] in ")}":
            depth -= 1
        if (text[at] == "," and depth == 1) or depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return found


CLASSES = {
    "d": "1",
    "l": "a",
    "a": "a",
    "w": "a1",
    "x": "a1",
    "s": " ",
    "S": "a1=:,./",
    "D": "a ",
    "L": "1 ",
    "%": "%",
}


def items(pattern: str) -> list[tuple[str, bool]]:
    """Return the items of a pattern: characters that each matches, and whether it is repeated
    without end.
    """
    found = []
    at = 0
    while at < len(pattern):
        if pattern[at] in "()^$" and (pattern[at] in "()" or at in (0, len(pattern) - 1)):
            at += 1
            continue
        if pattern.startswith("%f[", at):
            at = pattern.index("]", at) + 1
            continue
        if pattern[at] == "[":
            end = pattern.index("]", at + 2)
            matched = of_set(pattern[at + 1 : end])
            at = end + 1
        elif pattern[at] == "%":
            matched = CLASSES.get(pattern[at + 1], pattern[at + 1])
            at = at + 2
        elif pattern[at] == ".":
            matched = "a1 =:/.\n"
            at = at + 1
        else:
            matched = pattern[at]
            at = at + 1
        quantifier = pattern[at] if at < len(pattern) and pattern[at] in "*+-?" else ""
        at += len(quantifier)
        found.append((matched, quantifier in ("*", "+", "-") and quantifier != ""))
    return found


def of_set(text: str) -> str:
    candidates = "a1 =:,./-@%\n~!A"
    classes = {"w": "A-Za-z0-9", "d": "0-9", "l": "a-z", "s": r"\s"}
    expression = re.sub(r"%(.)", lambda match: classes.get(match[1], re.escape(match[1])), text)
    return "".join(one for one in candidates if re.fullmatch(f"[{expression}]", one))


def hostile(pattern: str, size: int) -> Iterator[str]:
    """Yield texts of about this size that nearly match."""
    parts = items(pattern)
    least = [matched[0] for matched, _ in parts]
    for at, (matched, repeated) in enumerate(parts):
        if repeated:
            for one in matched:
                for end in ("\1", " ", "\n", ""):
                    yield "".join(least[:at]) + one * size + end
    for length in range(1, len(parts) + 1):
        unit = "".join(least[:length])
        for between in ("", " "):
            yield (unit + between) * (size // max(1, len(unit + between))) + "\1"
            yield "".join(least) + (between + unit) * (size // max(1, len(unit + between))) + "\1"


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with EmbeddedServer() as server:
        yield redis.Redis.from_url(server.url, socket_timeout=60)


def took_us(client: Any, function: str, text: str, pattern: str) -> int:
    before = client.info("commandstats").get("cmdstat_evalsha", {"usec": 0})["usec"]
    client.evalsha(client.script_load(RUN), 0, function, text, pattern)
    return int(client.info("commandstats")["cmdstat_evalsha"]["usec"]) - before


def slow(client: Any, function: str, pattern: str) -> str:
    """Say which text makes a pattern take more than a time in proportion to its size, '' if none
    does.
    """
    for texts in zip(*(hostile(pattern, size) for size in SIZES), strict=True):
        if took_us(client, function, texts[-1], pattern) <= NOTICED_US:
            continue
        for short, long in pairwise(texts):  # the shorter first: ten times quadratic time is long
            least = [
                min(took_us(client, function, text, pattern) for _ in range(10))
                for text in (short, long)
            ]
            if least[1] > NOTICED_US and least[1] > 8 * least[0]:
                times = f"{least[0]} us for {len(short)} bytes and {least[1]} us for {len(long)}"
                return f"{pattern!r} takes {times}: {long[:60]!r}"
    return ""


FOUND = sorted({(function, pattern) for _, function, pattern in patterns()})


def test_the_patterns_of_every_file_are_found():
    assert len(FOUND) > 60
    calls = sum(
        len(FUNCTIONS.findall(re.sub(r"--.*", "", path.read_text())))
        for path in lua_folder().rglob("*.lua")
    )
    plain = sum(path.read_text().count(", true)") for path in lua_folder().rglob("*.lua"))
    assert len([*patterns()]) >= calls - plain - 12, (
        "those that are made of parts or have a name are few"
    )


def test_a_pattern_takes_time_in_proportion_to_the_text(client: Any):
    wrong = [text for function, pattern in FOUND if (text := slow(client, function, pattern))]
    none_wrong("a pattern takes time in proportion to the text", wrong)


@pytest.mark.parametrize(
    ("function", "pattern"),
    [
        ("gmatch", r"(%S-)=(%-?%d+)"),
        ("gmatch", r"%S+:%S+"),
        ("match", r"^(%d+) (%d+)(%.?%d*) ([%d:,]+)$"),
        ("match", r" inc=%d+(.*) since=%d+$"),
        ("match", r" p%d+ (%S+)/(%d+)%S* inc=(%d+)"),
        ("match", r"^(%d+)%.?%x*$"),
        ("match", "^(%l+)[^\n]*\n([^\n]*)\n([^\n]*)"),
        (
            "match",
            r"^(%l+) inc=(%d+) drain=([012]) first=(%d+) span=(%d+)(.-) score=([%d.e+-]+) "
            r"([^\n]*)$",
        ),
    ],
)
def test_patterns_that_take_quadratic_time_are_noticed(client: Any, function: str, pattern: str):
    """All of these were in lua/."""
    assert "us for" in slow(client, function, pattern)
