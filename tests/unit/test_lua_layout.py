"""The layout of Lua: one statement a line, one assignment a statement, names that say something, verbs as steps.

The loader relies on the lines (parsync_redis/store/scripts/inline.py). Files that break a rule
today are listed; the list only shrinks.
"""

import re
from pathlib import Path

import pytest

from parsync_redis.store.scripts.scripts import lua_folder
from tests.kit.offenders import none_wrong

COLUMNS = 100
STEPS = 25
FUNCTION_WORDS = {
    *(
        "again",
        "all",
        "at",
        "found",
        "g",
        "held",
        "it",
        "its",
        "left",
        "mine",
        "o",
        "one",
        "other",
        "others",
    ),
    *("rest", "said", "some", "t", "that", "there", "these", "this", "those", "told", "w"),
}
"""`any` is not among them: it is a key of any kind, and tests/kit/needs.py relies on the name."""
NO_CODE = re.compile(r"'[^'\n]*'|--.*")
PACKED = re.compile(r";|\b(?:then|do|else|repeat)\b *\S|\bfunction\b.*\bend\b")
ASSIGNMENT = re.compile(r" *(?:local )?((?:[\w.]+(?:\[[^]]*\])?, )+[\w.]+(?:\[[^]]*\])?) = (.*)")
DECLARED = re.compile(
    r"\blocal ([\w, ]+?)(?: =|$)|\bfor ([\w, ]+?) (?:=|in)\b|\bfunction \w*\(([\w, ]+)"
)

TO_UNPACK: frozenset[str] = frozenset()
"""Files that break a rule today."""


def code_of(line: str) -> str:
    """Return a line without its comment, and with empty strings."""
    return NO_CODE.sub(lambda match: "" if match[0].startswith("--") else "''", line).rstrip()


def values_of(text: str) -> list[str]:
    """Return the values behind a '=': the words between commas that are in no brackets."""
    flat = text
    while (inner := re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", "0", flat)) != flat:
        flat = inner
    return flat.split(", ")


def flaws(text: str, is_verb: bool = False) -> list[str]:
    """Say which rules the text of a Lua file breaks, and where."""
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        code = code_of(line)
        if len(line) > COLUMNS and not line.startswith("-- KEYS:"):
            wrong.append(f"{number}: more than {COLUMNS} columns")
        if PACKED.search(code):
            wrong.append(f"{number}: several statements in a line")
        assigned = ASSIGNMENT.match(code)
        if (
            assigned
            and len(values := values_of(assigned[2])) > 1
            and values != assigned[1].split(", ")[::-1]
        ):
            wrong.append(f"{number}: several assignments in a line")
        names = {
            name
            for found in DECLARED.finditer(code)
            for name in re.split(r", ", found[1] or found[2] or found[3])
        }
        wrong += [
            f"{number}: the name {name} says nothing" for name in sorted(names & FUNCTION_WORDS)
        ]
    if is_verb and (lines := steps(text)) > STEPS:
        wrong.append(f"the verb has {lines} lines behind its steps, {STEPS} at most")
    return wrong


def steps(text: str) -> int:
    """Count the lines of code of a script that are in no function."""
    outside = re.sub(r"^local function .*\n(?:(?:  .*)?\n)*end\n", "", text, flags=re.MULTILINE)
    return sum(bool(code_of(line)) for line in outside.splitlines())


def broken(path: Path) -> list[str]:
    return flaws(path.read_text(encoding="utf-8"), path.parent.name == "verbs")


def test_lua_is_laid_out_for_its_reader_and_the_loader():
    files = {
        path.relative_to(lua_folder()).with_suffix("").as_posix(): path
        for path in lua_folder().rglob("*.lua")
    }
    wrong = [
        f"{name}:{why}"
        for name, path in files.items()
        if name not in TO_UNPACK
        for why in broken(path)
    ]
    none_wrong("one statement a line, one assignment a statement", wrong)
    clean = sorted(name for name in TO_UNPACK if name not in files or not broken(files[name]))
    assert clean == [], "it breaks no rule any more: take it out of TO_UNPACK"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("if bad then return bad end", "several statements in a line"),
        ("local function name(a) return a end", "several statements in a line"),
        ("local a = 1; local b = 2", "several statements in a line"),
        ("local a, b = {}, f(1, 2)", "several assignments in a line"),
        ("list[#list + 1], list[#list + 2] = key, value", "several assignments in a line"),
        ("local found = f()", "the name found says nothing"),
        ("for _, one in ipairs(list) do", "the name one says nothing"),
        ("local function f(row, at)", "the name at says nothing"),
        (f"-- {'x' * 100}", "more than 100 columns"),
    ],
)
def test_a_line_that_breaks_a_rule_is_found(line: str, why: str):
    assert flaws(line) == [f"1: {why}"]


@pytest.mark.parametrize(
    "line",
    [
        "local word, detail = judge(i, text)",
        "local first, last",
        "a, b = b, a",
        "for i, row in rows() do",
        "elseif a == ';' then -- then do this",
        "end, 'of a function')",
        "local options, refusal = f({a, b}, g(1, 2))",
    ],
)
def test_a_line_that_breaks_no_rule_is_left_alone(line: str):
    assert flaws(line) == []


def test_the_steps_of_a_verb_are_counted_without_its_functions():
    function = "-- f: does it.\nlocal function f(a)\n  if a then\n    g()\n  end\nend\n"
    assert (
        steps(f"-- verb: does it.\n{function}\nlocal list = {{}}\nf(1) -- a comment\nreturn list\n")
        == 3
    )
    calls = "f(1)\n" * 26
    assert flaws(function + calls, is_verb=True) == [
        "the verb has 26 lines behind its steps, 25 at most"
    ]
