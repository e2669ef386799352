"""A script's header is the contract of the script, its binding and the reference: it names keys and
arguments.
"""

import re
from pathlib import Path

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.header import HEADER_FIELDS, Header
from parsync_redis.store.scripts.scripts import Script, expand, lua_folder
from tests.kit.offenders import none_wrong

LUA = sorted(lua_folder().rglob("*.lua"))


def header(argv: str, keys: str = "meta", reads: str = "") -> Header:
    fields = (
        dict.fromkeys(HEADER_FIELDS, "x")
        | {"KEYS": keys, "ARGV": argv}
        | ({"READS": reads} if reads else {})
    )
    return Header(
        "verb",
        "-- verb: does it.\n" + "".join(f"-- {name}: {text}\n" for name, text in fields.items()),
    )


def code(path: Path) -> str:
    return re.sub(r"--.*|'[^'\n]*'", "", path.read_text())


@pytest.mark.parametrize(
    ("argv", "once", "each"),
    [
        ("none", (), ()),
        ("id why", ("id", "why"), ()),
        ("count channel (id why)*", ("count", "channel"), ("id", "why")),
        ("(name value)*", (), ("name", "value")),
        ("count why id*", ("count", "why"), ("id",)),
    ],
)
def test_a_header_names_the_words_that_come_once_and_the_words_of_each_row(
    argv: str, once: tuple[str], each: tuple[str]
):
    assert (header(argv).once, header(argv).each) == (once, each)


@pytest.mark.parametrize("argv", ["", "a,b", "(a b)", "(a)* b", "a* b*", "(a (b)*)*"])
def test_a_header_that_cannot_be_read_is_refused(argv: str):
    with pytest.raises(BrokenContract, match=re.escape(f"verb.lua has ARGV {argv!r}")):
        header(argv)


@pytest.mark.parametrize(
    ("keys", "reads", "probes"),
    [
        ("meta slots inbox*", "", "bad_keys({1, 2}, 3)"),
        ("meta slots inbox*", "slots", "bad_keys({1}, 3)"),
        ("meta slots inbox*", "slots inbox", "bad_keys({1}, #KEYS + 1)"),
        ("meta slots inbox*", "meta slots inbox", ""),
        ("meta slots", "meta", "bad_keys({2}, #KEYS + 1)"),
        ("meta slots, of any type", "", ""),
    ],
)
def test_keys_that_a_script_reads_itself_are_not_probed(keys: str, reads: str, probes: str):
    made = header("count (id)*", keys, reads)
    text = made.before() + made.check(frozenset())
    assert probes in text
    assert ("bad_keys" in text) == bool(probes)
    assert ("TYPES" in text) == (bool(probes) or keys.endswith("type"))


def test_a_script_reads_only_what_its_keys_name():
    with pytest.raises(BrokenContract, match=r"verb.lua reads free, which its KEYS lack"):
        header("count (id)*", "meta slots", "free slots")


@pytest.mark.parametrize(
    "verb", ["submit", "take", "commit", "confirm", "start", "finish", "release"]
)
def test_the_scripts_of_every_task_probe_no_key(verb: str):
    """A look at the type of a key costs as much as reading it."""
    (script,) = (script for script in ALL_SCRIPTS if script.verb == verb)
    assert "or bad_keys(" not in script.text


ROW = ("id", "why")


def test_arguments_go_by_name():
    found = header("count channel (id why)*").arguments({"channel": "c"}, ROW, ["a", "x", "b", "y"])
    assert found == [2, "c", "a", "x", "b", "y"]
    named = header("count channel (id why)*").named(found)
    assert named.channel == "c"
    assert [(row.id, row.why) for row in named.rows] == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize(
    ("once", "names", "what"),
    [
        ({}, ROW, "its binding lacks channel"),
        ({"channel": "", "more": ""}, ROW, "its binding adds more"),
        ({"channel": ""}, ("id",), "its binding lacks row.why"),
        ({"channel": ""}, (*ROW, "how"), "its binding adds row.how"),
        (
            {"channel": ""},
            ("id", "reason"),
            "its binding lacks row.why, its binding adds row.reason",
        ),
        ({"channel": ""}, ("why", "id"), "its binding has rows of why id, not of id why"),
    ],
)
def test_a_binding_that_misses_or_adds_a_field_is_told_the_verb_and_the_field(once, names, what):
    with pytest.raises(
        BrokenContract, match=re.escape(f"lua: verb.lua and its binding differ: {what}")
    ):
        header("count channel (id why)*").arguments(once, names, [])


@pytest.mark.parametrize("row", [("a",), ("a", "b", "c")])
def test_a_row_that_is_not_whole_is_refused(row: tuple[str, ...]):
    with pytest.raises(BrokenContract, match="takes rows of 2 values: id why"):
        header("count (id why)*").arguments({}, ROW, row)


@pytest.mark.parametrize("text", ["args.reason", "row.reason", "args.id", "row.channel"])
def test_a_script_that_uses_a_name_which_its_header_lacks_is_refused(text: str):
    with pytest.raises(BrokenContract, match=f"lua: verb.lua uses {text}, its header has"):
        header("count channel (id why)*").resolve(f"return {text}")


def test_a_script_uses_every_name_of_its_header():
    unused = [
        f"{script.verb}.lua never uses {name}"
        for script in ALL_SCRIPTS
        for name in unused_names(script)
    ]
    none_wrong("a script uses what its header names", unused)


def unused_names(script: Script) -> list[str]:
    text = re.sub(r"--.*", "", expand(f"verbs/{script.verb}", lua_folder(), []))
    header = script.header
    names = [*(f"args.{name}" for name in header.once), *(f"row.{name}" for name in header.each)]
    return [name for name in names if name != "args.count" and not re.search(rf"\b{name}\b", text)]


def test_a_script_does_not_count_in_keys_or_arguments():
    spelled = [
        f"{path.name}: {line.strip()}"
        for path in LUA
        if path.stem != "arguments"  # the check of their numbers, which the loader calls
        for line in re.findall(r".*\b(?:KEYS|ARGV)\b.*", code(path))
        if path.stem != "types" or "ipairs(KEYS)" not in line
    ]
    none_wrong("the header names keys and arguments: args.NAME or row.NAME", spelled)
