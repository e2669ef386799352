"""The server's cost of each verb, compared with the golden file cost.json: thousand instructions a
task, by callgrind.

Counts are the same on a busy machine, but not on another server. So the file has figures by server,
version, allocator and machine, and other servers are not compared. PARSYNC_TEST_WRITE_DOCS=1 writes
the figures of this machine's server anew. The figures are those of `parsync bench cost`, with fewer
rounds.
"""

import json
import platform
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsync_lab.bench.cost import CALLGRIND, COMMANDSTATS, CostParameters, run_cost
from parsync_lab.bench.cost_life import COST_CASES, VERBS
from parsync_lab.bench.meters import find_valgrind
from parsync_redis.cli import app
from tests.kit.documents import WRITE
from tests.kit.servers import server_programs

GOLDEN = Path(__file__).with_name("cost.json")
DEARER = 1.1
STOP = threading.Event()

needs_valgrind = pytest.mark.skipif(
    find_valgrind() is None,
    reason="no valgrind (Debian: apt-get install valgrind; .ci/run unpacks it)",
)


def quiet(text):
    pass


def run(**asked):
    return run_cost(CostParameters(**asked), STOP, quiet)


def thousands(found):
    """Return the median of the rounds, by 'CASE, SIZE a call' and verb; of a life the sum of these.

    Lua collects its garbage in some of the rounds, and one of eight to sixteen is cheap: the least
    is luck. Of five rounds three may have garbage, so there are more. In most rounds some verb of a
    life has some.
    """
    return {
        f"{case}, {size} a call": medians(verbs)
        for case, sizes in found["cost"].items()
        for size, verbs in sizes.items()
    }


def medians(verbs):
    found = {verb: figure["median"] / 1000 for verb, figure in verbs.items()}
    found["life"] = sum(found[verb] for verb in VERBS)
    return {verb: round(cost, 1) for verb, cost in found.items()}


def dearer(golden, found):
    return [
        f"{verb}, {case}: {found[case][verb]} thousand instructions for one task instead of "
        f"{before}"
        for case, verbs in golden.items()
        for verb, before in verbs.items()
        if found[case][verb] > DEARER * before
    ]


def test_a_verb_is_dearer_by_more_than_a_tenth():
    golden = {"plain, 1 a call": {"start": 100.0, "finish": 100.0}}
    assert dearer(golden, {"plain, 1 a call": {"start": 109.9, "finish": 50.0}}) == []
    found = {"plain, 1 a call": {"start": 110.1, "finish": 100.0}}
    assert dearer(golden, found) == [
        "start, plain, 1 a call: 110.1 thousand instructions for one task instead of 100.0"
    ]


@needs_valgrind
def test_no_verb_became_a_tenth_dearer():
    """A server that gets little CPU does more of its own each call; so a verb that seems dearer is
    counted again.
    """
    asked = {
        "by": CALLGRIND,
        "rounds": 9,
        "tasks": 100,
        "calls": 10,
        "held": 100,
        "sizes": (100, 1),
    }
    asked["program"] = next(iter(server_programs().values()))
    found = run(**asked)
    facts = found["facts"]
    name = f"{facts['server']}, {facts['allocator']}, {platform.machine()}"
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if WRITE:
        golden[name] = thousands(found)
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if name not in golden:
        pytest.skip(
            f"cost.json has {', '.join(golden)}, not {name}: PARSYNC_TEST_WRITE_DOCS=1 adds it"
        )
    worse = dearer(golden[name], thousands(found))
    if worse and (again := dearer(golden[name], thousands(run(**asked)))):
        worse += ["counted again:", *again]
    else:
        worse = []
    assert not worse, "\n".join(["if it must be so, write cost.json anew and say why:", *worse])


@needs_valgrind
def test_a_larger_call_costs_fewer_instructions_a_task_and_more_shards_cost_more():
    """On another server program than above."""
    asked = {"by": CALLGRIND, "rounds": 1, "tasks": 10, "held": 0, "primaries": 2}
    asked["program"] = list(server_programs().values())[-1]
    of_one = run(**asked, sizes=(10, 1))
    of_any = run(**asked, sizes=(10,), mixed=True)
    assert [(found["primaries"], found["shards"]) for found in (of_one, of_any)] == [(2, 16)] * 2
    for case in COST_CASES:
        ten, one = (of_one["cost"][case][size]["life"]["median"] for size in ("10", "1"))
        assert 10_000 < ten < one < 10_000_000
        cheap, dear = (found["cost"][case]["10"] for found in (of_one, of_any))
        assert cheap["life"]["least"] < dear["life"]["least"]
        assert 2 * cheap["submit"]["least"] < dear["submit"]["least"], (
            "ten tasks are in at least five shards"
        )


@pytest.mark.parametrize("mixed", [False, True])
def test_without_valgrind_microseconds_of_all_shards_are_told(mixed):
    found = run(by=COMMANDSTATS, rounds=1, tasks=8, held=4, sizes=(4, 1), shards=3, mixed=mixed)
    assert (found["primaries"], found["shards"], found["mixed"]) == (1, 3, mixed)
    for case in COST_CASES:
        assert all(
            figure["least"] > 0
            for verbs in found["cost"][case].values()
            for figure in verbs.values()
        )


def test_without_valgrind_microseconds_are_told():
    found = run(by=COMMANDSTATS, rounds=2, tasks=20, held=10, sizes=(10,))
    assert (found["unit"], found["rounds"]) == ("microseconds", 2)
    for case in COST_CASES:
        assert list(found["cost"][case]["10"]) == [*VERBS, "life", "confirm"]
        assert all(
            0 < figure["least"] <= figure["median"] for figure in found["cost"][case]["10"].values()
        )


def test_the_command_names_the_cluster_whose_cost_it_tells():
    words = [
        "--by",
        COMMANDSTATS,
        "--rounds",
        "1",
        "--tasks",
        "4",
        "--held",
        "0",
        "--sizes",
        "2",
        "--primaries",
        "2",
    ]
    result = CliRunner().invoke(app, ["bench", "cost", *words, "--shards", "4", "--mixed"])
    assert result.exit_code == 0, result.stderr
    assert (
        "cluster     2 primaries, whose sum is told; 4 shards; calls of any shards\n"
        in result.stdout
    )


def test_the_command_prints_a_column_for_each_case_and_size():
    words = [
        "--by",
        COMMANDSTATS,
        "--rounds",
        "1",
        "--tasks",
        "4",
        "--held",
        "0",
        "--sizes",
        "2,1",
        "--option",
        "hz=5",
    ]
    result = CliRunner().invoke(app, ["bench", "cost", *words])
    assert result.exit_code == 0, result.stderr
    head, *rows = result.stdout.split("\n\n")[1].splitlines()
    assert head.split("  ")[0] == "VERB"
    assert [
        head.count(f"{case.upper()}, {size} A CALL") for case in COST_CASES for size in (2, 1)
    ] == [1] * 2 * len(COST_CASES)
    assert [row.split()[0] for row in rows] == [*VERBS, "life", "confirm"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tasks", "0"], "--tasks 0 is not valid: it must be from 1 to 5,000"),
        (["--held", "5001"], "--held 5001 is not valid: it must be from 0 to 5,000"),
        (["--rounds", "-1"], "--rounds -1 is not valid: it must be from 0 to 1,000"),
        (["--primaries", "17"], "--primaries 17 is not valid: it must be from 1 to 16"),
        (["--shards", "257"], "--shards 257 is not valid: it must be from 0 to 256"),
        (["--sizes", "100,501"], "--sizes 501 is not valid: it must be from 1 to 500"),
        (
            ["--sizes", "few"],
            "--sizes 'few' is not valid: it must be whole numbers with commas between them",
        ),
        (["--by", "perf"], "--by 'perf' is not known: known are callgrind, commandstats"),
        (["--option", "hz"], "--option 'hz' is not valid: it must be NAME=VALUE"),
    ],
)
def test_a_cost_that_cannot_be_measured_is_one_line_and_exit_code_2(words, says):
    result = CliRunner().invoke(app, ["bench", "cost", *words])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert says in result.stderr
