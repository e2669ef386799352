"""Lua is laid out for readers: one statement a line, 100 columns, and verbs that read as lists of named steps."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from parsync_redis.store.scripts import lua_folder
from tests.offenders import none_wrong

COLUMNS = 100
TOP_LEVEL = 25
SAYS_NOTHING = re.compile(
    "again|any|at|bad|found|g|has|held|here|is|many|mine|more|most|o|one|other|others|own|rest|said|seen|some|t|there|told|w"
)
"""Function words and letters, which do not say what a local is."""

PACKED_FILES = {
    "lib/call": "arguments batch bitmap clock hash_numbers",
    "lib/cluster": "wake",
    "lib/kind": "changes conditions feasible fits index line sweep taints waiting",
    "lib/place": "amounts_held claims doorbell lease leases_of_node",
    "lib/task": "history line line_check not_taken outbox outcome record resubmission start_order submission "
    "submit_rows successor transitions",
    "verbs": "align book cancel commit configure confirm deal_node discard expire finish give_back learn_times "
    "note_choices offer purge read_tasks release report_failures requeue revive ring rotate set_reason "
    "start submit take",
}
"""Files that are not laid out yet, by folder: they may become fewer."""

TO_LAY_OUT = {f"{folder}/{stem}.lua" for folder, stems in PACKED_FILES.items() for stem in stems.split()}

FILES = {path.relative_to(lua_folder()).as_posix(): path for path in sorted(lua_folder().rglob("*.lua"))}
FUNCTION = re.compile(r"^local function \w+\(.*(?: end|\n(?:(?:  .*)?\n)*end)\n", re.MULTILINE)
PACKED = re.compile(r"\b(?:then|else|repeat)\b +\S|\bdo +\S|\bfunction\b[ \w.]*\([^()]*\) +\S|;")
SEVERAL = re.compile(r"\s*(?:local )?([\w.\[\]#+ '\"]+(?:, [\w.\[\]#+ '\"]+)+) = (.+)")
LOCAL = re.compile(r"\blocal ([\w, ]+?)(?: =|$)|\bfor ([\w, ]+) (?:=|in)\b|\bfunction\b[ \w.]*\(([\w, ]*)\)")


def code(line: str) -> str:
    """Return a line without its comment and without the content of its texts."""
    return re.sub(r"--.*", "", re.sub(r"'[^']*'|\"[^\"]*\"", "''", line))


def assigns_several(line: str) -> bool:
    """Return whether a line assigns several values, which are neither the results of a call nor a swap."""
    match = SEVERAL.fullmatch(line.rstrip())
    if not match:
        return False
    values = match[2]
    for _ in range(values.count("(") + values.count("{")):
        values = re.sub(r"\([^(){}]*\)|\{[^(){}]*\}", "", values)
    targets = match[1].split(", ")
    is_swap = sorted(targets) == sorted(values.split(", "))
    return not is_swap and "(" not in values and "," in values


def words_of_locals(line: str) -> set[str]:
    """Return the names of the locals that a line declares."""
    return {name for match in LOCAL.finditer(line) for part in match.groups() if part for name in part.split(", ")}


def mistakes(line: str) -> list[str]:
    """Return what is wrong with a line."""
    bare = code(line)
    silent = filter(SAYS_NOTHING.fullmatch, sorted(words_of_locals(bare)))
    wrong = [f"the local {name} says nothing" for name in silent]
    if len(line) > COLUMNS and not line.startswith(("-- KEYS:", "-- READS:")):
        wrong.append(f"has {len(line)} columns")
    if PACKED.search(bare):
        wrong.append("has several statements")
    if assigns_several(bare):
        wrong.append("has several assignments")
    return wrong


def top_level(path: Path) -> list[str]:
    """Return the statements of a verb outside its functions, a line each."""
    lines = FUNCTION.sub("", path.read_text(encoding="utf-8")).splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("--")]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("if not node then return 'gone' end", ["has several statements"]),
        ("if not node then", []),
        ("for _, name in ipairs(names) do total = total + 1 end", ["has several statements"]),
        ("table.sort(names, function(a, b) return a < b end)", ["has several statements"]),
        ("each_lease(slots, node, function(slot, lease)", []),
        ("kind_of[id] = kind; suspect(id)", ["has several statements"]),
        ("local text = 'a; then b' -- if x then y end", []),
        ("local names, total = {}, 0", ["has several assignments"]),
        ("local word, limit = args.word, tonumber(args.limit)", ["has several assignments"]),
        ("lines[#lines + 1], lines[#lines + 2] = name, text", ["has several assignments"]),
        ("local name, slot = string.match(seat, '^(.*)/(%d+)$')", []),
        ("local first, last", []),
        ("first, last = last, first", []),
        ("local found = read_list(left, names)", ["the local found says nothing"]),
        ("for _, other in ipairs(nodes) do", ["the local other says nothing"]),
        ("local function adopt(one, line)", ["the local one says nothing"]),
        ("-- " + "x" * 98, ["has 101 columns"]),
        ("-- KEYS: " + "meta " * 30, []),
    ],
)
def test_a_line_that_is_packed_or_has_a_name_that_says_nothing_is_found(line: str, wrong: list[str]) -> None:
    assert mistakes(line) == wrong


def test_a_line_of_lua_is_one_statement_with_names_that_say_what_things_are() -> None:
    found = [
        f"{name}:{number}: {wrong}: {line.strip()[:80]}"
        for name, path in FILES.items()
        if name not in TO_LAY_OUT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for wrong in mistakes(line)
    ]
    none_wrong("a line of Lua is one statement with names that say what things are", found)


def test_a_verb_reads_as_a_list_of_named_steps() -> None:
    sizes = {name: len(top_level(path)) for name, path in FILES.items() if name.startswith("verbs/")}
    long = [f"{name}: {size}" for name, size in sizes.items() if size > TOP_LEVEL and name not in TO_LAY_OUT]
    none_wrong(f"a verb has at most {TOP_LEVEL} lines outside its functions", long)


def test_a_function_of_lua_says_what_it_does() -> None:
    silent = []
    for name, path in FILES.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        for above, line in pairwise(lines):
            if name not in TO_LAY_OUT and line.startswith("local function ") and not above.startswith("--"):
                silent.append(f"{name}: {line}")
    none_wrong("a comment above a function of Lua says what it does", silent)
