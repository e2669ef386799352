"""The figures of the queue by kind: all of them in a short run, and how they are judged
and shown.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsync_lab.bench.queue_bars import QUEUE_PARTS, Target, bars_of
from parsync_lab.bench.queue_blocked import named_kinds
from parsync_lab.bench.queue_order import ORDERERS, disorder
from parsync_lab.bench.queue_parameters import LIMITS, SHORT, QueueParameters
from parsync_lab.bench.tables import render
from parsync_redis.cli import app


@pytest.fixture(scope="module")
def found():
    result = CliRunner().invoke(app, ["bench", "queue", "--short", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.serial
def test_a_short_run_measures_every_part_and_leaves_a_clean_state(found):
    assert {name: found[name]["first_facts"] for name in QUEUE_PARTS} == {
        name: [] for name in QUEUE_PARTS
    }
    assert found["audit"] == 0
    assert [row["what"] for row in found["rows"]] == [
        bar.what for bar in bars_of(found, SHORT.schedulers)
    ]


@pytest.mark.serial
@pytest.mark.parametrize(
    ("part", "waiting", "kinds"),
    [("blocked-kind", SHORT.waiting, 1), ("blocked-kinds", SHORT.kinds, SHORT.kinds)],
)
def test_tasks_that_fit_are_placed_while_all_blocked_ones_wait(found, part, waiting, kinds):
    seen = found[part]
    assert (seen["waiting"], seen["kinds"]) == (waiting, kinds)
    assert (seen["probes"], seen["not_placed"]) == (SHORT.probes, 0)
    for delay in (seen["delay_ms"], seen["delay_before_ms"]):
        assert 0 <= delay["median"] <= delay["worst"]
    assert set(seen["cores"]) == set(seen["cores_before"]) == {"schedulers", "server"}


@pytest.mark.serial
def test_before_an_urgent_task_starts_only_what_was_taken(found):
    before = found["priority"]["started_before"]
    assert {what: len(counts) for what, counts in before.items()} == dict.fromkeys(
        before, SHORT.rounds
    )
    # A scheduler takes as many as it has seats for: two. So no more can be on their way when the
    # urgent one comes.
    assert all(count <= 2 * SHORT.schedulers for count in before["same kind"])


@pytest.mark.serial
def test_equal_tasks_all_start_and_their_order_is_judged(found):
    seen = found["order"]
    assert (seen["tasks"], seen["schedulers"], seen["of_pairs"]) == (60, ORDERERS, 1770)
    assert all(row["late"] <= row["pairs"] for row in seen["rounds"])


@pytest.mark.serial
def test_a_reason_is_counted_as_true_only_if_it_says_what_the_nodes_lack(found):
    seen = found["reasons"]
    assert (seen["waiting"], seen["kinds"]) == (SHORT.unseated, len(named_kinds()))
    assert 0 <= seen["with_true_reason"] <= seen["with_reason"] <= 1
    assert seen["untrue"] == [], "every reason that was written by then was the true one"
    assert seen["with_true_reason"] == seen["with_reason"]


@pytest.mark.parametrize(
    ("starts", "pairs", "late"),
    [
        ([], 0, 0),
        ([1, 2, 3, 4], 0, 0),
        ([2, 1, 3, 4], 1, 1),
        ([4, 1, 2, 3], 3, 3),
        ([4, 3, 2, 1], 6, 3),
        ([2, 3, 4, 1], 3, 1),
    ],
)
def test_disorder_counts_pairs_and_the_places_that_one_is_late(starts, pairs, late):
    assert disorder(starts) == (pairs, late)


def test_a_figure_is_judged_by_its_bar_and_its_goal():
    assert [Target("", value, 100, 20).reached for value in (20, 20.1, 100, 100.1, None)] == [
        "goal",
        "bar",
        "bar",
        "no",
        "no",
    ]
    assert [Target("", value, 90, 100, at_least=True).reached for value in (100, 90, 89.9)] == [
        "goal",
        "bar",
        "no",
    ]


def test_a_task_that_was_never_placed_reaches_no_bar():
    delays = {"median": 3.0, "worst": 5.0}
    cores = {"schedulers": 0.01, "server": 0.01}
    part = {
        "waiting": 9,
        "kinds": 1,
        "not_placed": 1,
        "delay_ms": delays,
        "delay_before_ms": delays,
    }
    rows = bars_of({"blocked-kind": {**part, "cores": cores, "cores_before": cores}}, 2)
    assert [(row.measured, row.reached) for row in rows] == [
        (3.0, "goal"),
        (None, "no"),
        (0.02, "goal"),
    ]


def test_the_document_has_a_section_with_each_figure_beside_its_bar(tmp_path: Path):
    row = {
        "what": "delay",
        "measured": None,
        "without": 2.0,
        "bar": 1000,
        "goal": 200,
        "unit": "ms",
        "reached": "no",
    }
    kept = {"queue": {"command": ["queue", "--tasks", "7"], "found": {"audit": 0, "rows": [row]}}}
    text = render(kept, tmp_path / "performance.md")
    assert "`parsync bench queue --tasks 7`, audit 0" in text
    assert "| delay | never | 2 ms | 1,000 ms | 200 ms | no |" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--waiting", "0"], "--waiting 0 is not valid: it must be from 1 to 10,000,000"),
        (["--quiet", "nan"], "--quiet nan is not valid: it must be from 0.1 to 3,600"),
        (
            ["--only", "order,all"],
            "--only 'all' is not known: known are blocked-kind, blocked-kinds, priority, order",
        ),
    ],
)
def test_a_run_that_cannot_be_is_one_line_and_exit_code_2(words, says):
    result = CliRunner().invoke(app, ["bench", "queue", *words])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert says in result.stderr


def test_each_size_has_its_limits():
    assert list(LIMITS) == list(QueueParameters.__dataclass_fields__)
    SHORT.check()
