"""Lines, runs, ends and successors of tasks: the scripts and Python read the same, and no other
texts.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parsync_redis.model.kind import split_kind
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.record import TaskLine, options_text, owner_of, read_run
from parsync_redis.model.task import Submission
from parsync_redis.store import Store
from parsync_redis.store.scripts.scripts import lua_folder
from tests.store.model.test_text import DAMAGE, NUMBERS, damaged

OPTIONS = ["starts", "ran", "since", "expires", "max", "pub"]
KINDS = [
    "work slots=1",
    "proj.render slots=2 gpu=1 gpu_model:a100 latency",
    "a:b/c slots=1 celery.queue:a%20b quality",
    "proj.render slots=2 gpu=1 latency for=research/anna under=customer:7,stripe*2",
    "proj.render slots=2 gpu=1 prefer=zone:a=0|b=2,pack=gpu latency for=research/anna",
    "work slots=1 prefer=vram_gb:>=24",
    "work slots=1 for=acme",
    "work slots=1 under=stripe",
]
WORDS = st.dictionaries(
    st.sampled_from(OPTIONS), NUMBERS | st.sampled_from(["c1", "s7"]), max_size=5
)
LINES = st.builds(
    lambda mark, takes, life, order, ready, submitted, options, kind: (
        f"{mark}{takes}@{life} {order} {ready} {submitted} "
        f"{','.join(f'{name}={value}' for name, value in options.items()) or '-'} {kind}"
    ),
    st.sampled_from(["", "+"]),
    st.integers(0, 10**9 - 1),
    *[NUMBERS] * 4,
    WORDS,
    st.sampled_from(KINDS),
)
RUNS = st.builds(
    lambda attempt, slots, asked, since, started: (
        f"a81f {attempt} p0 n1/{slots} inc=3{asked} "
        f"since={since}{started and f' started={started}'}"
    ),
    st.sampled_from(["1@17.s1.482913", "12@3.host-1.a.0", "1@1"]),
    st.sampled_from(["3", "3,4"]),
    st.sampled_from(["", " gpu=1 mem=4096"]),
    NUMBERS,
    NUMBERS | st.just(""),
)


def script(*names: str) -> Callable[[Any, str, list[str]], Any]:
    """Return a call of a piece of Lua behind these libraries."""
    head = "local KEY = {}\n" + "\n".join(
        (lua_folder() / "lib" / f"{name}.lua").read_text() for name in names
    )

    def call(client: Any, code: str, args: list[str]) -> Any:
        reply = client.eval(f"{head}\n{code}", 0, *args)
        return [word.decode() for word in reply] if isinstance(reply, list) else reply

    return call


def the_same(client: Any, line: str) -> None:
    """Check that both read the same of a line, or both nothing."""
    code = (
        "local l = parse_line(ARGV[1])\n"
        "if not l then return false end\n"
        "local takes = string.format('%d', l.takes)\n"
        "local found = {l.mark, takes, l.life, l.order, l.ready, l.submitted, l.kind, "
        "line_text(l)}\n"
        "for i = 2, #ARGV do found[#found + 1] = option(l, ARGV[i]) or '' end\n"
        "return found"
    )
    reply = script("task/line")(client, code, [line, *OPTIONS])
    try:
        known = TaskLine.of(line)
    except ValueError:
        assert reply is None, line
        return
    assert reply is not None, line
    mark, takes, life, order, ready, submitted, kind, again, *options = reply
    assert (mark == "+", int(takes), int(life), int(order)) == (
        known.marked,
        known.takes,
        known.life,
        known.order,
    )
    assert (int(ready), int(submitted), kind) == (known.ready_ms, known.submitted_ms, known.kind)
    assert again == line or takes != line.partition("@")[0].removeprefix("+"), (
        "a number with zeros in front"
    )
    assert dict(zip(OPTIONS, options, strict=True)) == {
        name: known.options.get(name, "") for name in OPTIONS
    }


def test_a_line_is_the_same_for_the_scripts(any_store: Store) -> None:
    @given(LINES, DAMAGE | st.none())
    @example("0@1 1 1 1 - work slots=1", (24, "\n", 0))
    @example("0@1 1 1 1 - work slots=1", (12, "\n", 1))
    @example("0@1 1 1 1 - work slots=1", (8, "", 3))
    @example("0@1 1 1 1 - work slots=1", (0, "9" * 9, 0))
    @example(f"0@{'9' * 15} 1 1 1 - work slots=1", (2, "9", 0))
    @example(f"0@1 {'9' * 15} 1 1 - work slots=1", (4, "9", 0))
    @example(f"0@1 1 {'9' * 15} 1 - work slots=1", (6, "9", 0))
    @example(f"0@1 1 1 {'9' * 15} - work slots=1", (8, "9", 0))
    def one(line: str, damage: tuple[int, str, int] | None) -> None:
        the_same(any_store.client, line if damage is None else damaged(line, *damage))

    one()


def test_an_option_is_set_changed_and_taken_out(any_store: Store) -> None:
    code = (
        "local l = parse_line(ARGV[1])\nset_option(l, ARGV[2], ARGV[3] ~= '' and ARGV[3] or "
        "nil)\nreturn {line_text(l)}"
    )

    @given(LINES, st.sampled_from(OPTIONS), st.sampled_from(["", "7"]))
    def one(line: str, name: str, value: str) -> None:
        (changed,) = script("task/line")(any_store.client, code, [line, name, value])
        before = TaskLine.of(line)
        after = TaskLine.of(changed)
        assert after.options == {k: v for k, v in before.options.items() if k != name} | (
            {name: value} if value else {}
        )
        assert (after.kind, after.order, after.takes) == (before.kind, before.order, before.takes)

    one()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_split_the_same(any_store: Store, kind: str) -> None:
    code = (
        "local _, tenant, limits = split_accounts(ARGV[1])\n"
        "local name, needs, strategy, prefer = split_kind(ARGV[1])\n"
        "return {name, needs, strategy, tenant or '', limits or '', prefer or ''}"
    )
    reply = script("kind/shares")(any_store.client, code, [kind])
    assert reply == [*split_kind(kind)]
    assert split_kind(kind).text == kind


def test_a_run_is_the_same_for_the_scripts(any_store: Store) -> None:
    """Scripts read of what Python reads as a run the same place, start and attempt."""
    code = (
        "local place, started = run_parts(ARGV[1])\nreturn {place or ARGV[1], started or '', "
        "attempt_of(ARGV[1]) or ''}"
    )

    @given(RUNS, DAMAGE | st.none())
    def one(run: str, damage: tuple[int, str, int] | None) -> None:
        run = run if damage is None else damaged(run, *damage)
        place, started_ms = read_run(run)
        if place is not None:
            reply = script("task/line")(any_store.client, code, [run])
            assert reply == [place.text, run.partition(" started=")[2], place.attempt]
            assert started_ms == (int(reply[1]) if reply[1] else None)

    one()


def test_a_successor_reads_back_what_was_written(any_store: Store) -> None:
    code = (
        "local n = parse_next(ARGV[1])\n"
        "return n and {string.format('%d', n.priority or -1), n.due or '', n.options, n.kind} or "
        "false"
    )

    @given(
        st.integers(0, 9),
        NUMBERS | st.just("-"),
        st.sampled_from(["-", "expires=7,max=3,pub=c1"]),
        st.sampled_from(KINDS),
    )
    def one(priority: int, due: str, options: str, kind: str) -> None:
        reply = script("task/line", "task/successor")(
            any_store.client, code, [f"{priority} {due} {options} {kind}"]
        )
        assert reply == [str(priority), due.strip("-"), options, kind]

    one()


@pytest.mark.parametrize(
    ("attempt", "owner"),
    [
        ("1@17.s1.482913", "s1"),
        ("1@1.host.a-7.0", "host.a-7"),
        ("1@1", ""),
        ("1@1.s1", ""),
        ("x@1.s1.0", ""),
        ("", ""),
    ],
)
def test_an_attempt_names_its_scheduler(attempt: str, owner: str) -> None:
    assert owner_of(attempt) == owner


def test_the_options_of_a_submission_are_words() -> None:
    options = TaskOptions.of({"max_starts": 2, "wait_for_capacity": True})
    task = Submission("a", "work", b"", options, 5, "1@1.s1.0", -7, "c1")
    assert options_text(task) == "delay=5 expiry=-7 max=2 wait=1 after=1@1.s1.0 pub=c1"
    assert options_text(Submission("a", "work", b"")) == ""
    assert options_text(Submission("a", "work", b"", delay_ms=0)) == "delay=0"
