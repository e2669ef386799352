"""The loader puts each library in once, finds circles, and holds a script's header to its binding."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.store.scripts import scripts
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.header import HEADER_FIELDS, Header
from parsync_redis.store.scripts.scripts import Script, compose, expand, lua_folder, read_header
from tests.kit.offenders import none_wrong

Write = Callable[..., Path]
HEAD = "".join(f"-- {name}: x\n" for name in HEADER_FIELDS)
SCRIPT = "-- verb: does it.\n" + HEAD


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write Lua files into a folder of their own: write(name=text), with __ for a slash."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.lua"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_a_library_stands_once_in_the_script_and_before_its_users(write: Write):
    folder = write(
        verbs__verb="--- @include one\n--- @include two\nreturn 'verb'\n",
        lib__one="--- @include base\nlocal one\n",
        lib__two="--- @include base\nlocal two\n",
        lib__base="local base\n",
    )
    text = expand("verbs/verb", folder, [])
    assert "@include" not in text
    assert [line for line in text.splitlines() if line] == [
        "local base",
        "local one",
        "local two",
        "return 'verb'",
    ]


def test_a_library_that_is_named_twice_is_in_the_text_once(write: Write):
    folder = write(verbs__verb="--- @include base\n--- @include base\n", lib__base="local base\n")
    assert expand("verbs/verb", folder, []).count("local base") == 1


def test_functions_that_nothing_calls_are_not_sent(write: Write):
    script = SCRIPT.replace("ARGV: x", "ARGV: none")
    folder = write(
        verbs__verb=script
        + "--- @include all\nlocal function read() return 1 end\nuse(read)\nuse(read)\n",
        lib__call__arguments="local function refuse_call() return nil end\n",
        lib__all="local function base()\n  if x then\n    y()\n  end\nend\nlocal function above() return base() end\n\n"
        "-- named in a comment\nlocal function named(a, b)\n  return 'named ' .. a\nend\n\n"
        "local function use(f)\n\n  f()\nend\n",
    )
    text = compose(read_header("verb", folder), folder)
    said = [*map(re.escape, script.splitlines()), "local (TYPES|KEYS).*", ".*refuse.*"]
    made = re.compile("|".join(["", *said]))
    assert [line for line in text.splitlines() if not made.fullmatch(line)] == [
        "-- named in a comment",
        "local function use(f)",
        "  f()",
        "end",
        "local function read() return 1 end",
        "use(read)",
        "use(read)",
    ]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_circle_of_includes_is_named(write: Write, length: int):
    names = [f"l{i}" for i in range(length)]
    libraries = {
        f"lib__{name}": f"--- @include {names[(i + 1) % length]}\n" for i, name in enumerate(names)
    }
    folder = write(verbs__verb="--- @include l0\n", **libraries)
    with pytest.raises(BrokenContract, match=r"circle: verbs/verb -> lib/l0 -> .*lib/l0"):
        expand("verbs/verb", folder, [])


def test_a_missing_library_is_named_with_its_user(write: Write):
    with pytest.raises(BrokenContract, match=r"no file nothing.lua, wanted by verbs/verb"):
        expand("verbs/verb", write(verbs__verb="--- @include nothing\n"), [])


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_a_header_without_one_of_its_fields_is_refused(field: str):
    text = "-- verb: does it.\n" + HEAD.replace(f"-- {field}: x\n", "")
    with pytest.raises(BrokenContract, match=f"verb.lua says nothing of {field}"):
        Header("verb", text)


@pytest.mark.parametrize("first", ["", "-- other: does it.", "return 1"])
def test_a_script_begins_with_its_verb(first: str):
    with pytest.raises(BrokenContract, match="must begin with '-- verb: '"):
        Header("verb", f"{first}\n{HEAD}")


def test_a_script_takes_the_keys_of_its_header(write: Write, monkeypatch: pytest.MonkeyPatch):
    text = SCRIPT.replace("KEYS: x", "KEYS: meta inbox*\n-- ALSO: events").replace(
        "ARGV: x", "ARGV: count id*"
    )
    refuse = "local function refuse_call() return nil end\n"
    folder = write(verbs__verb=text + "return 1\n", lib__call__arguments=refuse)
    monkeypatch.setattr(scripts, "lua_folder", lambda: folder)
    script = Script("verb")
    assert (script.keys, script.also) == (("meta", "inbox*"), ("events",))


def test_every_script_has_a_binding_and_every_library_a_use():
    folder = lua_folder()
    assert {path.stem for path in (folder / "verbs").glob("*.lua")} == {
        script.verb for script in ALL_SCRIPTS
    }
    used = "".join(script.text for script in ALL_SCRIPTS)
    for library in (folder / "lib").rglob("*.lua"):
        assert library.read_text().splitlines()[0] in used, library.name


def test_a_script_is_short_and_asks_for_no_unlisted_keys():
    texts = {path.stem: path.read_text() for path in lua_folder().rglob("*.lua")}
    lines = [(stem, line) for stem, text in texts.items() for line in text.splitlines()]
    none_wrong(
        "a script has at most 160 lines",
        [stem for stem, text in texts.items() if len(text.splitlines()) > 160],
    )
    wide = [
        f"{stem}: {line}"
        for stem, line in lines
        if len(line) > 130 and not line.startswith("-- KEYS:")
    ]
    none_wrong("a line has at most 130 characters", wide)
    words = ("'KEYS'", "'SCAN'", "cjson", "cmsgpack", "math.random", "'FLUSHALL'")
    wrong = [f"{stem} has {word}" for stem, text in texts.items() for word in words if word in text]
    none_wrong("a script asks for no unlisted keys", wrong)


def test_functions_that_are_called_in_full_only_are_made_when_they_are_called(write: Write):
    folder = write(
        verbs__verb=SCRIPT.replace("ARGV: x", "ARGV: none")
        + "--- @include all\nif x then in_full().rare() end\nusual()\n",
        lib__call__arguments="local function refuse_call() return nil end\n",
        lib__all="local function base() return 1 end\nlocal function both() return 2 end\n"
        "local function rare() return base() + both() end\nlocal function usual() return both() end\n",
    )
    text = compose(read_header("verb", folder), folder)
    inside = text[text.index("function in_full()") : text.index("FULL = {")]
    assert [
        name for name in ("base", "both", "rare", "usual") if f"local function {name}()" in inside
    ] == [
        "base",
        "both",
        "rare",
    ]
    outside = text.replace(inside, "")
    assert [
        name for name in ("base", "both", "rare", "usual") if f"local function {name}()" in outside
    ] == [
        "both",
        "usual",
    ]
    assert "FULL = {rare = rare}" in text
    assert text.startswith("local in_full\n")
    folder = write(verbs__verb=SCRIPT.replace("ARGV: x", "ARGV: none"), lib__call__arguments="")
    assert "in_full" not in compose(read_header("verb", folder), folder)


def test_a_script_has_room_for_its_locals():
    """Lua allows 200 in one function, includes are text in the same function, each step is a local."""
    locals = {
        script.verb: sum(line.startswith("local ") for line in script.text.splitlines())
        for script in ALL_SCRIPTS
    }
    wrong = [f"{verb} has {count} locals" for verb, count in locals.items() if count >= 150]
    none_wrong("a script has fewer than 150 locals", wrong)
