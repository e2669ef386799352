"""parsync replay azure on a small generated trace: servers that are enough, refusals, wishes."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from parsync_lab.replay.azure_trace import AzureTrace, read_azure_trace
from parsync_lab.replay.packing import (
    POLICIES,
    Packing,
    PackingParameters,
    PackingReplay,
    best_fit,
    fewest_servers,
    replay_azure,
)
from parsync_redis.cli import app

from .test_refusals import refused

HEAD = "vmId,tenantId,cores,ram,vmTypeId,starttime,endtime"
SIZES = ((200, 28), (100, 32), (400, 56), (800, 224), (1200, 448), (4800, 900))
MINUTE = 1 / 1440
PARAMETERS = PackingParameters(schedulers=3, partitions=4)


def write_trace(path: Path, requests: int = 200, old: int = 60) -> Path:
    """Write a trace of some full servers; `old` machines are there from the start."""
    rng = np.random.default_rng(1)
    lines = [HEAD]
    for number in range(requests):
        cores, ram = SIZES[rng.choice(len(SIZES), p=(0.3, 0.2, 0.2, 0.1, 0.05, 0.15))]
        begin = (number - old) * MINUTE / 3
        end = "inf" if number % 10 == 0 else f"{max(begin, 0) + rng.exponential(60) * MINUTE}"
        start = "-1497.0" if number < old else f"{begin}"
        lines.append(f"vm{number},t,{cores}.0,{ram}.0,0,{start},{end}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("azure") / "requests.csv")


@pytest.fixture(scope="module")
def trace(path: Path) -> AzureTrace:
    return read_azure_trace(path)


def played(trace: AzureTrace, servers: int, policy: str, to_refusal: bool = False) -> Packing:
    return PackingReplay(trace, servers, POLICIES[policy], PARAMETERS).run(to_refusal)


def test_machines_that_are_there_from_the_start_come_first_at_the_mean_interval(
    trace: AzureTrace,
) -> None:
    arrivals_s = [request.at_s for request in trace.requests]
    assert np.diff(arrivals_s[:60]).tolist() == pytest.approx([20.0] * 59)
    assert arrivals_s[60] == pytest.approx(60 * 20)
    assert all(request.end_s >= request.at_s for request in trace.requests)


def test_best_fit_nearly_reaches_the_bound_of_what_all_machines_hold(trace: AzureTrace) -> None:
    assert best_fit(trace, trace.least_servers - 1, to_refusal=True).refused
    assert not best_fit(trace, trace.least_servers + 3, to_refusal=True).refused


def test_pack_refuses_nothing_where_other_policies_do(trace: AzureTrace) -> None:
    servers = trace.least_servers + 2
    by_policy = {name: played(trace, servers, name) for name in ("pack", "spread", "random")}
    assert by_policy["pack"].refused == 0
    assert min(by_policy["spread"].refused, by_policy["random"].refused) > 0
    for result in by_policy.values():
        assert result.requests == 200
        assert result.claims - result.lost_claims == 200 - result.refused


def test_a_refused_request_never_gets_a_server_later(trace: AzureTrace) -> None:
    replay = PackingReplay(trace, 5, POLICIES["pack"], PARAMETERS)
    result = replay.run(to_refusal=False)
    queue = replay.store.queues[0]
    tasks = queue.tasks | queue.ended[0]
    assert result.refused > 10
    states = [str(tasks[r.name].state) for r in trace.requests]
    assert states.count("cancelled") == result.refused
    assert set(states) == {"running", "succeeded", "cancelled"}


def test_a_replay_to_a_refusal_ends_there(trace: AzureTrace) -> None:
    result = played(trace, 5, "spread", to_refusal=True)
    assert result.refused == 1
    assert result.requests < 200


def test_the_same_seed_gives_the_same_figures(trace: AzureTrace) -> None:
    first, again = (played(trace, 12, "pack") for _ in range(2))
    again.cpu_s = first.cpu_s
    assert first == again


@pytest.mark.parametrize("enough", [1, 10, 11, 42, 50, 340, 341])
def test_the_fewest_servers_are_found_in_steps_of_ten(enough: int) -> None:
    tried = list[int]()

    def play(servers: int) -> Packing:
        tried.append(servers)
        return Packing(servers, refused=int(servers < enough))

    assert fewest_servers(play, least=1).servers == -(-enough // 10) * 10
    assert len(tried) == len(set(tried)) < 13


def test_the_command_prints_a_row_for_each_policy(path: Path) -> None:
    words = ["replay", "azure", "--trace", str(path), "--limit", "40", "--schedulers", "2"]
    text = CliRunner().invoke(app, words)
    assert text.exit_code == 0, text.stderr
    rows = [line.split()[0] for line in text.stdout.splitlines()[-5:]]
    assert rows == ["pack", "pack-whole", "spread", "random", "best-fit"]
    as_json = CliRunner().invoke(app, [*words, "--servers", "10", "--policy", "pack", "--json"])
    policies = json.loads(as_json.stdout)["policies"]
    assert [*policies] == ["pack"]
    assert policies["pack"]["servers"] == 10


def test_a_view_is_half_a_gap_old(trace: AzureTrace) -> None:
    result = replay_azure(trace, ["best-fit"], 20, PackingParameters(gap_s=200))
    assert result["requests_behind"] == pytest.approx(100 / trace.interval_s)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("v,t,100.5,8,0,0,1", "line 2: cores 100.5 is not valid: it must be a whole number from 1"),
        (
            "v,t,9601,8,0,0,1",
            "cores '9601' is not valid: it must be a whole number from 1 to 9,600",
        ),
        ("v,t,100,0,0,0,1", "ram '0' is not valid: it must be a whole number from 1 to 2,250"),
        ("v,t,100,8,0,soon,1", "starttime 'soon' is not valid: it must be a number of days"),
        ("v,t,100,8,0,3,2", "endtime '2' is not valid: it must be a number of days, after start"),
        ("v,t,100,8,0,3,nan", "endtime 'nan' is not valid"),
        ("v,t,100,8,0,3", "there is no endtime: a line must have a value for each column"),
        ("v v,t,100,8,0,3,4", "vmId 'v v' is not valid"),
    ],
)
def test_a_line_that_is_no_request_is_refused(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(f"{HEAD}\n{line}\n")
    assert said in refused("replay", "azure", "--trace", str(path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "pak"], "--policy 'pak' is not known: known are pack, pack-whole, spread"),
        (["--gap", "0"], "--gap 0 is not valid: it must be a number of seconds"),
        (["--schedulers", "9"], "--schedulers 9 is not valid: it must be a whole number from 1"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(path: Path, words: list[str], said: str) -> None:
    assert said in refused("replay", "azure", "--trace", str(path), *words)


def test_a_server_that_runs_out_of_slots_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("\n".join([HEAD, *(f"v{n},t,1,1,0,{n},inf" for n in range(101))]))
    line = refused("replay", "azure", "--trace", str(path), "--servers", "1", "--policy", "random")
    assert "server-00000 has 100 machines: the replay gives a server so many slots" in line
