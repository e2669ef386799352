"""The demo's counting, its percentiles and its sums, without a server."""

from collections import Counter

import pytest

from examples.demo.driver import Gathered
from examples.demo.measure import list_modules, measure, read_module, stdlib_folder
from examples.demo.nodes import DEMO_NODES, options_of
from examples.demo.report import (
    delays_ms,
    is_clean,
    mean_scores,
    most_complex,
    percentile,
    summarize,
    total,
)
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState

SOURCE = b"""\
import os

def plain():
    return 1

class Shape:
    def area(self, sides):
        if sides and sides[0] or os.sep:          # if +1, and +1, or +1
            return [s for s in sides if s if s > 1]   # comprehension +1, conditions +2
        for side in sides:                        # +1
            while side:                           # +1
                side -= 1
        def inner(x):
            return 1 if x else 2                  # inner's own +1
        try:
            return inner(0)
        except ValueError:                        # +1
            pass
        except OSError:                           # +1
            pass

async def choose(value):
    match value:
        case 1:                                   # +1
            pass
        case _:                                   # +1
            pass

if os.sep:                                        # of the module, of no function
    pass
"""


def test_a_module_is_counted():
    found = measure("shape.py", SOURCE)
    assert found["most_complex"] == {"name": "Shape.area", "line": 7, "complexity": 11}
    assert {
        name: found[name] for name in ("lines", "functions", "classes", "branches", "error")
    } == {
        "lines": len(SOURCE.splitlines()),
        "functions": 4,
        "classes": 1,
        "branches": 14,
        "error": "",
    }


def test_functions_inside_others_have_their_names_and_their_own_complexity():
    inner = measure("inner.py", b"def outer():\n  def inner(x):\n    return 1 if x else 2\n")[
        "most_complex"
    ]
    assert inner == {"name": "outer.inner", "line": 2, "complexity": 2}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"print 'two'\n", "SyntaxError: Missing parentheses"),
        (b"x = 1\0\n", ("ValueError: ", "SyntaxError: ")),
        (b"# coding: no-such\nx\n", "SyntaxError: "),
        ("é = 1\n".encode("latin-1"), "SyntaxError: "),
    ],
)
def test_a_file_that_does_not_parse_gives_a_result_with_the_reason(source, error):
    found = measure("bad.py", source)
    assert found["error"].startswith(error)
    assert (found["functions"], found["most_complex"]) == (0, None)
    assert found["lines"] == len(source.splitlines())


def test_source_that_nests_deeply_is_counted_or_refused_but_does_not_break():
    deep = b"x = " + b"-" * 20_000 + b"1\n"
    assert measure("deep.py", deep)["error"].startswith(
        ("RecursionError", "MemoryError", "SyntaxError")
    )


def test_an_empty_module_has_no_function():
    assert measure("__init__.py", b"")["most_complex"] is None


def test_the_standard_library_is_listed_without_what_was_installed_into_it(tmp_path):
    for name in (
        "ast.py",
        "json/decoder.py",
        "site-packages/alien.py",
        "a/dist-packages/b.py",
        "json/notes.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_modules(tmp_path) == ["ast.py", "json/decoder.py"]
    assert "json/decoder.py" in list_modules(stdlib_folder())
    assert read_module("json/decoder.py")["classes"] >= 2


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, 0),
        ([7], 99, 7),
        ([3, 1, 2], 50, 2),
        (range(1, 101), 99, 99),
        (range(1, 101), 50, 50),
        ([1, 2], 0, 1),
    ],
)
def test_percentiles_are_values_that_occurred(values, percent, expected):
    assert percentile(list(values), percent) == expected


def status(id, state, node="swift", ready=1000, placed=1010):
    return TaskStatus(id, state, node=node, attempt=1, times={"ready": ready, "placed": placed})


def gathered(statuses, runs):
    found = Gathered({s.id: f"{s.id}.py" for s in statuses}, 1.5, statuses, runs=Counter(runs))
    found.results = {
        s.id: measure(f"{s.id}.py", b"def f(): pass\n") for s in statuses if s.state == "succeeded"
    }
    return found


def test_the_summary_counts_what_was_lost_failed_or_ran_twice():
    found = gathered(
        [
            status("a", TaskState.SUCCEEDED),
            status("b", TaskState.SUCCEEDED, "desk", placed=1050),
            status("c", TaskState.FAILED),
            status("d", TaskState.RUNNING),
            status("e", TaskState.GONE, None, None, None),
        ],
        {"a": 1, "b": 2, "c": 1},
    )
    summary = summarize(found, DEMO_NODES, "Redis 7", 3)
    assert {
        name: summary[name] for name in ("submitted", "succeeded", "failed", "lost", "ran_twice")
    } == {
        "submitted": 5,
        "succeeded": 2,
        "failed": 1,
        "lost": 2,
        "ran_twice": 1,
    }
    assert summary["delay_ms"] == {"p50": 10, "p99": 50}
    assert summary["by_node"]["desk"] == {
        "slots": 2,
        "score": 4.0,
        "tasks": 1,
        "labels": {"zone": "b", "screen": "yes"},
    }
    assert not is_clean(summary)


def test_a_task_that_succeeded_but_left_no_result_has_failed():
    found = gathered([status("a", TaskState.SUCCEEDED)], {"a": 1})
    found.results.clear()
    summary = summarize(found, DEMO_NODES, "", 3)
    assert (summary["succeeded"], summary["failed"], is_clean(summary)) == (0, 1, False)


def test_a_run_in_which_all_went_well_is_clean():
    summary = summarize(gathered([status("a", TaskState.SUCCEEDED)], {"a": 1}), DEMO_NODES, "", 3)
    assert is_clean(summary)
    assert mean_scores(summary) == (pytest.approx((4 * 9.5 + 3 * 6 + 2 * 4 + 1) / 10), 9.5)  # type: ignore[comparison-overlap]


def test_a_task_that_was_never_placed_has_no_delay():
    assert delays_ms(
        [status("a", TaskState.WAITING, placed=None), status("b", TaskState.RUNNING)]
    ) == [10]


def test_sums_and_the_most_complex_functions():
    results = [
        measure("b.py", b"def f(x):\n  return 1 if x else 2\n"),
        measure("a.py", SOURCE),
        measure("c.py", b"("),
    ]
    assert (total(results).modules, total(results).functions, total(results).unparsed) == (3, 5, 1)
    assert [(one.complexity, one.name) for one in most_complex(results, 2)] == [
        (11, "Shape.area"),
        (2, "f"),
    ]


def test_a_module_that_draws_windows_needs_a_screen_which_some_demo_nodes_have():
    assert options_of("tkinter/ttk.py") == {"require": {"screen": "yes"}}
    assert options_of("ast.py") == {}
    assert sum(node.slots for node in DEMO_NODES if node.labels["screen"] == "yes") >= 2
