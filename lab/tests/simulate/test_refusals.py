"""An impossible simulation is refused with one clear line, before anything is simulated
or written.
"""

import json
import sys
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from parsync_lab.simulate.trace import read_trace
from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput
from tests.chaos.fuzz.entries import FuzzedEntry
from tests.chaos.fuzz.run import judge
from tests.chaos.fuzz.values import mangled

HEAD = "task_create_time, task_end_time, job_id, task_id,number_of_instances, status\n"


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schedulers", "21"], "--schedulers 21 is more than --partitions 10"),
        (["--slots", "50"], "--slots 50 at --scale 0.1 are 5"),
        (["--schedulers", "9000", "--partitions", "4096"], "--schedulers 9000 is not valid"),
        (["--rate", "0"], "--rate 0 is not valid: it must be more than 0"),
        (["--rate", "nan"], "--rate nan is not valid"),
        (["--gap", "-1"], "--gap -1 is not valid"),
        (["--duration", "0"], "--duration 0 is not valid"),
        (["--score-variance", "-1"], "--score-variance -1 is not valid"),
        (["--scale", "2"], "--scale 2 is not valid"),
        (["--ema", "0"], "--ema 0 is not valid"),
        (["--seed", "-1"], "--seed -1 is not valid"),
        (["--repeat", "0"], "--repeat 0 is not valid"),
        (["--strategy", "best"], "--strategy 'best' is not known: known are latency, quality"),
        (["--sync", "never"], "--sync 'never' is not known: known are parsync, state, same"),
        (["--prefer", "pak"], "unknown preference 'pak': known are pack"),
        (["--prefer", "pack", "--prefer", "pack"], "preference 'pack' is given twice"),
        (["--prefer", "zone=a"], "--prefer zone=a has no meaning here: simulated nodes have slots"),
        (["--schedulers", "1"], "--schedulers 1 cannot be split into the groups"),
    ],
)
def test_a_bad_parameter_is_named_with_what_would_be_right(words: list[str], said: str) -> None:
    assert said in refused("simulate", "strategies", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["conflicts", "--sharpness", "2"],
            "--sharpness has no meaning for conflicts: it takes --schedulers, --part",
        ),
        (
            ["omega", "--gap", "1", "--amplifier", "2"],
            "--gap, --amplifier have no meaning for omega: it takes --sched",
        ),
        (
            ["extra-slots", "--slots", "100"],
            "--slots has no meaning for extra-slots: it takes --schedulers",
        ),
        (["omega", "--prefer", "pack"], "--prefer has no meaning for omega"),
        (["staleness", "--length", "2"], "--length has no meaning for staleness"),
        (["omega", "--schedulers", "33"], "--schedulers 33 is more than --partitions 32"),
        (
            ["conflicts", "--schedulers", "2", "--slots", "5000"],
            "--slots 5000 are too few: a scheduler claims 10000",
        ),
    ],
)
def test_an_option_that_means_nothing_to_an_experiment_is_refused(
    words: list[str], said: str
) -> None:
    assert said in refused("simulate", *words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "is empty: its first line must name the columns task_create_time, task_end_time, "
            "number_of_instances",
        ),
        ("\n1,2,3\n", "is empty: its first line must name the columns"),
        (
            "a,b,c\n1,2,3\n",
            "has no column task_create_time, task_end_time, number_of_instances; it has a, b, c",
        ),
        (HEAD, "is empty: no row has a time of creation"),
        (HEAD + "9,3,1,1,5,Failed\n", "is empty"),
        (HEAD + "1,x,1,1,5,Terminated\n", "line 2: not a row of numbers"),
        (HEAD + "1,2\n", "line 2: not a row of numbers"),
        (HEAD + "1,2,1,1,inf,Terminated\n", "is empty"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(text)
    assert said in refused("simulate", "trace", str(tmp_path / "trace.csv"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "task_create_time,task_end_time,number_of_instances\n1,2,3\n",
            "has no column job_id; it has task_create_time, task_end_time, number_of_instances",
        ),
        (
            "task_create_time,task_end_time,number_of_instances,job_id\n1,5,2\n",
            "line 2: not a row of numbers",
        ),
        (HEAD + "1,90,1,1,50,Terminated\n2,9,1,1,50,Terminated\n", "take fewer --slots"),
    ],
)
def test_a_trace_without_enough_jobs_is_refused(text: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(text)
    assert error in refused("simulate", "jobs", str(tmp_path / "trace.csv"), "--scale", "1")


@pytest.mark.parametrize("content", [b"\x1f\x8b garbage", b"plain text", b"\x1f\x8b\x08\x00"])
def test_a_damaged_or_missing_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


def test_any_bytes_are_read_as_a_trace_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"

    def feed(content: bytes) -> None:
        path.write_bytes(content)
        read_trace(path)

    trace = b"task_create_time,task_end_time,number_of_instances\n1,2,3\n1.5,9,1\n"
    door = FuzzedEntry(lambda rng: mangled(rng, trace), feed)
    answers = {case: judge(door, case) for case in (door.draw(Random(seed)) for seed in range(200))}
    assert {case: fault for case, (fault, _) in answers.items() if fault} == {}
    assert {refused for _, refused in answers.values()} == {False, True}


def test_without_matplotlib_plots_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused("simulate", "staleness", "--out", str(tmp_path / "out"))
    assert "pip install 'parsync-lab[simulate]'" in said
    assert not (tmp_path / "out").exists()


def test_the_result_is_written_and_printed_alike(tmp_path: Path) -> None:
    words = [
        "simulate",
        "staleness",
        "--schedulers",
        "2",
        "--partitions",
        "2",
        "--scale",
        "0.001",
        "--jobs",
        "1",
    ]
    result = CliRunner().invoke(
        app, [*words, "--json", "--no-plots", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "result.json").read_text() == result.stdout
    assert json.loads(result.stdout)["parameters"]["schedulers"] == 2
    assert "per wall second" in result.stderr
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(*words, "--no-plots", "--out", str(tmp_path / "file"))
    assert "no results in" in refused(
        "simulate", "report", str(tmp_path / "none"), str(tmp_path / "x.md")
    )
