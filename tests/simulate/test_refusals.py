"""What cannot be simulated is one clear line, before anything is simulated or written."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput
from parsync_redis.simulate.trace import read_trace
from parsync_redis.simulate.whatif import Prediction, choose

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
        (["--schedulers", "1"], "--schedulers 1 cannot be split into the groups"),
    ],
)
def test_a_bad_parameter_is_named_with_what_would_be_right(words: list[str], said: str) -> None:
    assert said in refused("simulate", "strategies", *words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column task_create_time"),
        ("a,b,c\n1,2,3\n", "has no column task_create_time, task_end_time, number_of_instances; it has a, b, c"),
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


@pytest.mark.parametrize("content", [b"\x1f\x8b garbage", b"plain text", b"\x1f\x8b\x08\x00"])
def test_a_damaged_or_missing_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


def test_without_matplotlib_plots_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused("simulate", "staleness", "--out", str(tmp_path / "out"))
    assert "pip install 'parsync-redis[simulate]'" in said
    assert not (tmp_path / "out").exists()


def test_the_result_is_written_and_printed_alike(tmp_path: Path) -> None:
    words = ["simulate", "staleness", "--schedulers", "2", "--partitions", "2", "--scale", "0.001", "--jobs", "1"]
    result = CliRunner().invoke(app, [*words, "--json", "--no-plots", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "result.json").read_text() == result.stdout
    assert json.loads(result.stdout)["parameters"]["schedulers"] == 2
    assert "a wall second" in result.stderr
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(*words, "--no-plots", "--out", str(tmp_path / "file"))
    assert "no results in" in refused("simulate", "report", str(tmp_path / "none"), str(tmp_path / "x.md"))


# -- whatif --------------------------------------------------------------------------------------------------------


def test_whatif_shows_alternatives_and_marks_the_one_to_choose() -> None:
    words = ["whatif", "--schedulers", "2", "--partitions", "4", "--gap", "0.1", "--rate", "200", "--duration", "0.5"]
    result = CliRunner().invoke(app, [*words, "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = [one["name"] for one in found["alternatives"]]
    assert names == ["as given", "latency", "quality", "half the schedulers", "twice the schedulers", "half the gap",
                     "twice the gap"]  # fmt: skip
    assert found["choose"] in names
    given = found["alternatives"][0]
    assert given["keeps_up"]
    assert given["staleness_mean_s"] == pytest.approx(0.05, rel=0.05)
    assert given["reads_per_s"] == 2 * 4 / 0.1
    assert given["oldest_s"] <= 0.1 + 0.05 + 1e-6
    table = CliRunner().invoke(app, [*words, "--jobs", "1"], env={"COLUMNS": "250"}).stdout
    assert f"* {found['choose']}" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "0"], "--rate 0 is not valid"),
        (
            ["--rate", "1000", "--duration", "10", "--slots", "5000"],
            "keep 10,000 slots busy; --slots 5,000 are too few",
        ),
        (["--decisions", "0"], "--decisions 0 is not valid"),
        (["--schedulers", "9"], "--schedulers 9 is more than --partitions 8"),
        (["--partitions", "-3"], "--partitions -3 is not valid"),
    ],
)
def test_whatif_refuses_what_cannot_be(words: list[str], said: str) -> None:
    assert said in refused("whatif", *words)


def prediction(name: str, p99_s: float, score: float, calls: float, keeps_up: bool = True) -> Prediction:
    return Prediction(name, 1, 1, 0.5, "latency", keeps_up, p99_s / 2, p99_s, 0.0, score, 0.25, 0.5, 1.0, 1.0, calls)


def test_the_choice_keeps_up_then_is_fast_then_good_then_cheap() -> None:
    slow, fast = prediction("slow", 1.0, 11.0, 1), prediction("fast", 0.1, 9.0, 50)
    behind = prediction("behind", 0.05, 12.0, 1, keeps_up=False)
    assert choose([slow, fast, behind])[0] is fast
    better = prediction("better", 0.14, 9.5, 90)
    assert choose([slow, fast, better])[0] is better
    cheaper = prediction("cheaper", 0.12, 9.51, 10)
    assert choose([fast, better, cheaper])[0] is cheaper
    assert "none keeps up" in choose([behind])[1]
