"""Stored lines: what Python writes the scripts read, and the other way round; each line reads back
what was written.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model import text
from parsync_redis.model.apps import KnownTasks
from parsync_redis.model.kind import Kind, kind_text
from parsync_redis.model.needs import Resources, are_needs, is_resources, parse_resources
from parsync_redis.model.node import Node, drain_terms
from parsync_redis.model.options import Strategy
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from tests.kit.lua_libraries import library_text
from tests.store.model.test_fits import NEEDS

NUMBERS = st.integers(0, 10**15 - 1).map(str) | st.integers(10**14, 10**15 - 1).map(str)
PIECE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
SLOTS = st.integers(1, 9999)
PARTS = st.floats(0, 1).map(lambda part: f"{part:.12f}") | st.sampled_from(["0", "1"])
DEVICES = " gpu.mem@0=8.5 gpu.mem@10=4 gpu@0=0.5 gpu@10=1 parsync.devices:shared"
VALUES: dict[str, st.SearchStrategy[str]] = {
    "ahead": st.sampled_from(["0", "1", "3", "-1", "-9"]),
    "all": st.sampled_from("01"),
    "capacity": st.sampled_from(["slots=0", "slots=6,mem=12.5", "gpu.mem@10=8,gpu@0=0?", "?"]),
    "deadline": st.just("no deadline")
    | NUMBERS.map(lambda number: f"deadline_s={number[:9]}.{number[:9]}"),
    "drain": st.sampled_from("012"),
    "first": st.integers(0, 10**8 - 1).map(str),
    "labels": st.sampled_from(["", "zone:a", "celery.queue:a%20b gpu:a100"]),
    "name": st.sampled_from(["n1", "n-1.a@host", "0"]),
    "numbers": st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3).map(
        lambda pairs: " ".join(f"p{at}={a}->{b}" for at, (a, b) in enumerate(pairs))
    ),
    "offer": st.tuples(SLOTS, st.sampled_from(["", " gpu=2 mem=4096", " zone:a", DEVICES])).map(
        lambda o: f"slots={o[0]}{o[1]}"
    ),
    "options": st.sampled_from(["", '{"slots": 2}', '{"resources": {"mem": "4 GiB"}}']),
    "waiting": st.integers(1, 10**15 - 1).map(str),
    "partition": st.integers(0, 4095).map(str),
    "reason": PIECE,
    "score": st.floats(-1e9, 1e9).map(repr),
    "share": PARTS,
    "slots": SLOTS.map(str),
    "span": st.just("10000"),
    "state": st.sampled_from(["up", "suspect", "leaving", "down"]),
    "used": PARTS,
    "task": st.sampled_from(["proj.render", "a", "a:b/c"]),
    "where": st.sampled_from(["parsync:{c:p0}:nodes", "x"]),
    "work": st.floats(0, 9999).map(lambda work: f"{work:.6f}"),
    "who": st.sampled_from(["host:7", "h"]),
    "why": PIECE,
}


def lines(line: text.LineTemplate) -> st.SearchStrategy[dict[str, str]]:
    """Draw the fields of a line, sometimes without the optional ones."""
    fields = {
        field: VALUES.get(field, NUMBERS)
        for field in text.FIELD_PATTERNS
        if f"{{{field}}}" in line.template
    }
    optional = "".join(re.findall(r"\[.*?\]", line.template))
    return st.fixed_dictionaries(
        {field: values for field, values in fields.items() if f"{{{field}}}" not in optional},
        optional={field: values for field, values in fields.items() if f"{{{field}}}" in optional},
    )


def damaged(written: str, at: int, piece: str, cut: int) -> str:
    """Return a line with a piece put in and some characters cut out."""
    at %= len(written) + 1
    return written[:at] + piece + written[at + cut :]


PIECES = ["", " ", "=", "0", "9" * 9, "x", "-", ".", ":", ": ", "\n"]
DAMAGE = st.tuples(st.integers(0, 200), st.sampled_from(PIECES), st.integers(0, 9))


@pytest.mark.parametrize("line", text.LINES.values(), ids=text.LINES)
def test_a_line_reads_back_what_was_written(line: text.LineTemplate) -> None:
    @given(lines(line))
    def one(fields: dict[str, str]) -> None:
        written = line.write(**{**dict.fromkeys(text.FIELD_PATTERNS), **fields})
        assert line.read(written) == fields
        assert line.match(written.encode())

    one()


@pytest.mark.parametrize("line", text.LINES.values(), ids=text.LINES)
def test_a_malformed_line_is_rejected(line: text.LineTemplate) -> None:
    assert line.read("") is None
    assert line.read("no such line\nat all") is None


# -- beside the scripts ----------------------------------------------------------------------------

LUA: dict[str, tuple[str, str]] = {
    "NODE_LINE": (
        "node/record",
        "local n = parse_node('n1', ARGV[1])\n"
        "if not n then return false end\n"
        "n.name = 'nodes'\n"
        "write_node(KEYS[1], n)\n"
        "return redis.call('HGET', KEYS[1], 'nodes')",
    ),
    "COUNTER": (
        "node/heartbeat",
        "local inc, moved, since = parse_counter(ARGV[1])\nreturn inc and counter_text(inc, "
        "moved, since)",
    ),
    "KIND_LINE": (
        "kind/line",
        "local count, _, _, why = parse_kind(ARGV[1])\nreturn count and string.sub(ARGV[1], 1, "
        "#ARGV[1] - #why) .. why",
    ),
    "STREAK": (
        "node/streak",
        "local streak = parse_streak(ARGV[1])\nreturn streak and streak_text(streak)",
    ),
    "TERMS": ("node/note", "return is_terms(ARGV[1]) and ARGV[1]"),
}
"""Line -> its library in Lua, and the end of a script that reads ARGV[1] and writes it again, or
answers false.
"""


@pytest.mark.unaudited
@pytest.mark.parametrize("name", LUA)
def test_a_line_is_the_same_for_the_scripts(any_store: Store, name: str) -> None:
    """The scripts read what Python writes, and write the same text again; both judge damaged lines alike."""
    line = text.LINES[name]
    client = any_store.client
    again = script(*LUA[name])

    @given(lines(line), DAMAGE | st.none())
    def one(fields: dict[str, str], damage: tuple[int, str, int] | None) -> None:
        written = line.write(**{**dict.fromkeys(text.FIELD_PATTERNS), **fields})
        if damage is not None:
            written = damaged(written, *damage)
        answer = again(client, written)
        assert (answer is not None) == reads(name, written), written
        assert answer in (None, written)

    one()


@pytest.mark.unaudited
@pytest.mark.parametrize(
    ("name", "written", "sound"),
    [
        ("TERMS", "deadline_s=600: a new disk\nin n1", True),
        ("NODE_LINE", "up inc=1 drain=0 first=0 span=4 score=1 slots=4 \ngpu=2", False),
    ],
)
def test_a_line_break_is_the_same_for_the_scripts(
    any_store: Store, name: str, written: str, sound: bool
) -> None:
    """Both sides judge a line break alike. Otherwise each pass of the leader would repair the value again, without effect."""
    assert (
        (script(*LUA[name])(any_store.client, written) is not None) == reads(name, written) == sound
    )


def reads(name: str, written: str) -> bool:
    """Return whether Python reads a line, but for a node's offer, of which a script judges no more
    than the slots.
    """
    if name != "NODE_LINE":
        return text.LINES[name].read(written) is not None
    fields = text.NODE_LINE.read(written)
    try:
        Node.of("n1", written)
    except ValueError:
        return fields is not None and not is_resources(fields["offer"]) and fits_span(fields)
    return True


def fits_span(fields: dict[str, str]) -> bool:
    """Return whether a record is a node's, whatever words follow the slots of its offer."""
    slots = fields["offer"].removeprefix("slots=").partition(" ")[0]
    try:
        float(fields["score"])
    except ValueError:
        return False
    ahead = int(fields.get("ahead", 0))
    if not slots.isdecimal() or not -ahead <= int(slots) <= int(fields["span"]) - max(0, ahead):
        return False
    limit = re.search(r"(?:^|,)slots=(\d+)", fields.get("capacity", ""))
    return limit is None or int(slots) + ahead <= int(limit[1])


def script(library: str, ending: str) -> Callable[[Any, str], str | None]:
    """Return a call of a script of one library."""
    whole = library_text(library) + ending

    def call(client: Any, written: str) -> str | None:
        answer = client.eval(whole, 1, "nodes", written)
        return answer.decode() if answer is not None else None

    return call


@pytest.mark.unaudited
def test_the_terms_of_a_drain_are_terms_for_the_scripts(any_store: Store) -> None:
    is_terms = script(*LUA["TERMS"])

    @given(st.none() | st.floats(0, 1e6), PIECE)
    def one(deadline_s: float | None, reason: str) -> None:
        terms = drain_terms(deadline_s, reason)
        assert is_terms(any_store.client, terms) == terms

    one()


@pytest.mark.unaudited
def test_needs_offers_and_ledgers_are_the_same_for_the_scripts(any_store: Store) -> None:
    well_formed = script("kind/fits", "return well_formed(ARGV[1]) and ARGV[1]")

    @given(VALUES["offer"], DAMAGE | st.none())
    def one(offer: str, damage: tuple[int, str, int] | None) -> None:
        written = offer if damage is None else damaged(offer, *damage)
        assert (well_formed(any_store.client, written) is not None) == is_resources(written), (
            written
        )
        if is_resources(written):
            parse_resources(written)

    one()


@pytest.mark.unaudited
def test_needs_with_conditions_are_the_same_for_the_scripts(any_store: Store) -> None:
    whole = library_text("kind/fits")

    @settings(max_examples=300)
    @given(NEEDS, DAMAGE | st.none())
    def one(needs: Resources, damage: tuple[int, str, int] | None) -> None:
        written = needs.text if damage is None else damaged(needs.text, *damage)
        answer = cast(Any, any_store.client).eval(
            f"{whole} return are_needs(ARGV[1]) and 1 or 0", 0, written
        )
        assert bool(answer) == are_needs(written), written

    one()


@pytest.mark.unaudited
def test_a_place_with_devices_is_the_same_for_the_scripts(any_store: Store) -> None:
    task_at = script("place/lease", "return task_at(ARGV[1])")
    words = st.sampled_from(
        ["gpu=1", "gpu.mem@1=8.5", "gpu@0=0.5", "gpu@999=1", "gpu.mem=8", "gpu@01=1", "gpu@1000=1"]
    )
    pieces = st.sampled_from([*PIECES, "@", "@1", ".m", "a" * 33])

    @settings(max_examples=300)
    @given(
        st.lists(words, max_size=3),
        st.tuples(st.integers(0, 80), pieces, st.integers(0, 3)) | st.none(),
    )
    def one(held: list[str], damage: tuple[int, str, int] | None) -> None:
        written = " ".join(["a81f 1@17.s1.482913 p0 n1/3,4 inc=3", *held, "since=17"])
        written = written if damage is None else damaged(written, *damage)
        try:
            task = Place.of(written).task
        except ValueError:
            task = None
        assert task_at(any_store.client, written) == task, written

    one()


def test_the_text_of_a_kind_is_read_as_it_was_written() -> None:
    """Every strategy belongs to a kind, and no other word does; the text of a record is a kind or
    damaged.
    """
    strategies = st.sampled_from(["", *Strategy, "fast", "slots=1", "latency quality"])

    preferences = st.sampled_from(["", "pack", "zone:a=0|b=2,pack=gpu", "vram_gb:>=8"])

    @given(VALUES["task"], VALUES["offer"], preferences, strategies, DAMAGE | st.none())
    def one(
        name: str, needs: str, prefer: str, strategy: str, damage: tuple[int, str, int] | None
    ) -> None:
        needs = needs if damage is None else damaged(needs, *damage)
        written = kind_text(name, needs, strategy, prefer=prefer)
        if needs.startswith("slots=") and are_needs(needs):
            kind = Kind.of(written)
            assert kind.text == written
            assert (kind.name, kind.needs, kind.prefer) == (name, needs, prefer)
            assert kind.strategy == (strategy if strategy in {*Strategy} else "")

    one()


@pytest.mark.parametrize(
    "text",
    ["", "a", "a ", "a b", " slots=1", "a slots=1 b", "a gpu=1", "a slots=1\n", "\u00e4 slots=1"],
)
def test_a_malformed_text_is_no_kind(text: str) -> None:
    with pytest.raises(ValueError, match="not a kind of task"):
        Kind.of(text)


@pytest.mark.unaudited
def test_a_declared_task_is_found_by_the_scripts(any_store: Store) -> None:
    """lib/kind/feasible.lua looks for the line of a task in the text of an app."""
    find = script(
        "kind/feasible",
        "return string.find(ARGV[1], '\\n' .. 'proj.b' .. ' ', 1, true) and ARGV[1]",
    )
    for tasks, there in (
        ({"proj.a": None, "proj.b": {"slots": 2}}, True),
        ({"proj.b": None}, True),
        ({"proj.bb": None}, False),
    ):
        known = KnownTasks.of(tasks)
        assert (
            (find(any_store.client, known.text) is not None)
            == there
            == ("proj.b" in known.declared)
        )
        assert known.declared == tasks
