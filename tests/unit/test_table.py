"""A table fits its terminal: no value is broken, and what matters least gives way first."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from parsync_redis.cli.command_table import fill_watch
from parsync_redis.cli.listing import screen
from parsync_redis.cli.node_page import slot_ranges
from parsync_redis.cli.table import Column, lay_out, short_ids, shorten_ids, wrapped

UUIDS = [f"{n:08x}-0000-4000-8000-000000000000" for n in (1, 2)]
COLUMNS = (
    Column("ID", text=True),
    Column("NAME", cut="left"),
    "STATE",
    Column("SUBMITTED", 3),
    Column("NEEDS", 1, cut="right"),
    Column("WHY", prose=True),
)
WHY = (
    "2 nodes fit: n1 is full until one of the tasks a, b ends; n2 is drained: a new disk is built "
    "in until evening"
)
ROW = ("00000001", "proj.render", "waiting", "2026-11-25 19:04:10.856 UTC", "slots=1 mem=8GiB", WHY)
LONG = (
    "00000002",
    "project.of.a.long.name.render",
    "running",
    "2026-11-25 19:04:10.856 UTC",
    "slots=1 gpu=1",
    "",
)


def test_a_pipe_has_whole_values_and_no_details_whatever_its_rows_are():
    head, row = lay_out(COLUMNS, [ROW], None)
    assert head.split() == ["ID", "NAME", "STATE", "NEEDS", "WHY"]
    assert row == f"00000001  proj.render  waiting  slots=1 mem=8GiB  {WHY}"
    empty, _ = lay_out(COLUMNS, [("a", "b", "", "", "", "")], None)
    assert empty.split() == head.split()


def test_wide_rows_are_one_line_with_everything():
    head, row, other = lay_out(COLUMNS, [ROW, LONG], None, wide=True)
    assert head.split() == ["ID", "NAME", "STATE", "SUBMITTED", "NEEDS", "WHY"]
    assert row.endswith(WHY)
    assert "2026-11-25 19:04:10.856 UTC" in row
    assert other.endswith("slots=1 gpu=1")


def test_at_80_columns_details_go_and_the_sentence_stands_below():
    assert lay_out(COLUMNS, [ROW, LONG], 80) == [
        "ID        NAME                           STATE    NEEDS",
        "00000001  proj.render                    waiting  slots=1 mem=8GiB",
        "    2 nodes fit: n1 is full until one of the tasks a, b ends; n2 is drained: a",
        "    new disk is built in until evening",
        "00000002  project.of.a.long.name.render  running  slots=1 gpu=1",
    ]


def test_where_names_are_too_long_they_are_cut_at_the_side_that_says_least():
    lines = lay_out(COLUMNS, [ROW, LONG], 50)
    assert lines[-1] == "00000002  …g.name.render  running  slots=1 gpu=1"


def test_a_short_sentence_stands_beside_and_empty_columns_are_left_out():
    rows = [("n1", "up", "", ""), ("n2", "suspect", "", "it did not start its tasks")]
    columns = ("NODE", "STATE", "TAINTS", Column("NOTE", prose=True))
    assert lay_out(columns, rows, 80) == [
        "NODE  STATE    NOTE",
        "n1    up",
        "n2    suspect  it did not start its tasks",
    ]


def test_numbers_stand_to_the_right():
    assert lay_out(("NODE", "SLOTS"), [("n1", "8"), ("n2", "128")], None) == [
        "NODE  SLOTS",
        "n1        8",
        "n2      128",
    ]


@given(
    st.lists(st.tuples(st.text("ab ", max_size=30), st.text("ab界", max_size=40)), min_size=1),
    st.integers(30, 120),
)
def test_no_line_is_wider_than_the_terminal(texts, width):
    rows = [("00000001", name, "running", "x" * 20, name, why) for why, name in texts]
    assert all(
        cell_len(line) <= width for line in lay_out(COLUMNS, rows, max(width, 50)) if width >= 50
    )


def test_uuids_are_short_where_that_is_enough():
    assert short_ids([*UUIDS, "my-own-long-name-of-a-task"]) == {
        UUIDS[0]: "00000001",
        UUIDS[1]: "00000002",
        "my-own-long-name-of-a-task": "my-own-long-name-of-a-task",
    }
    twins = [UUIDS[0], UUIDS[0].replace("-0000-", "-1000-")]
    assert [*short_ids(twins).values()] == ["00000001-0000", "00000001-1000"]
    assert shorten_ids(f"task {UUIDS[1]} ends") == "task 00000002 ends"
    assert wrapped(f"  n1 is full until {UUIDS[1]} ends", 25, 2) == [
        "  n1 is full until",
        "    00000002 ends",
    ]


def test_slots_in_a_row_are_a_range():
    assert slot_ranges((0, 1, 2, 7, 9, 10)) == "0-2,7,9-10"


def test_watch_may_do_without_a_number():
    assert fill_watch(["tasks", "--watch"]) == ["tasks", "--watch", "2"]
    assert fill_watch(["tasks", "--watch", "0.5", "--json"]) == [
        "tasks",
        "--watch",
        "0.5",
        "--json",
    ]
    assert fill_watch(["nodes", "--watch", "n1"]) == ["nodes", "--watch", "2", "n1"]
    assert fill_watch(["submit", "a", "--", "--watch"]) == ["submit", "a", "--", "--watch"]


def test_a_page_fits_the_terminal_and_counts_the_missing_rows():
    drawn = screen([f"line {n}" for n in range(30)], 10)
    assert drawn.count("\n") == 9
    assert "... and 22 more lines" in drawn
