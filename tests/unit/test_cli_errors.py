"""Each bad input of the command line is one line on stderr and exit code 2."""

import json

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.cli.common import make_client

NOWHERE = "redis://:secret@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PARSYNC_URL", NOWHERE)
    monkeypatch.delenv("PARSYNC_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def impatient(monkeypatch):
    """Make commands ask an unreachable server once: the default of make_client is a value of its
    definition.
    """
    monkeypatch.setattr(make_client, "__defaults__", (0,))


def run(*words):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["submit", "a.b", "x"], "argument 1 'x' is not JSON"),
        (["submit", "a.b", "--kwargs", "{"], "--kwargs '{' is not JSON"),
        (["submit", "a.b", "--kwargs", "[1]"], "kwargs of task a.b must be a mapping"),
        (["submit", "a b"], "task name 'a b' is not valid"),
        (["submit", "a.b", "--id", ""], "task id '' is not valid"),
        (["submit", "a.b", "--slots", "0"], "slots=0 is not valid"),
        (["submit", "a.b", "--slots", "-3"], "slots=-3 is not valid"),
        (["submit", "a.b", "--slots", "99999999"], "slots=99999999 is not valid"),
        (["submit", "a.b", "--priority", "10"], "priority=10 is not valid"),
        (
            ["submit", "a.b", "--strategy", "best"],
            "strategy='best' is not valid: it must be one of latency",
        ),
        (
            ["submit", "a.b", "--resource", "mem"],
            "--resource 'mem' is not valid: it must be NAME=VALUE",
        ),
        (["submit", "a.b", "--resource", "mem=lots"], "resource mem='lots' is not an amount"),
        (["submit", "a.b", "--require", "gpu model=a"], "label name 'gpu model' is not valid"),
        (["submit", "a.b", "--countdown", "-1"], "countdown=-1.0 is not valid"),
        (["submit", "a.b", "--expires", "0"], "expires=0.0 is not valid"),
        (["status", ""], "task id '' is not valid"),
        (["cancel", ""], "task id '' is not valid"),
        (["drain", "x y"], "node name 'x y' is not valid"),
        (
            ["drain", "n1", "--at", "10m", "--reason", "x"],
            "the time at which a node leaves stands alone: such a drain has no deadline",
        ),
        (
            ["drain", "n1", "--deadline", "soon"],
            "--deadline 'soon' is not valid: it must be a number of seconds",
        ),
        (
            ["drain", "n1", "--deadline", "99d"],
            "deadline_s=8553600.0 is not valid: it must be a number of seconds",
        ),
        (["drain", "n1", "--reason", "two\nlines"], "it must be a line of at most 200 characters"),
        (["tasks", "requeue"], "say which: the ids of dead tasks, or --all"),
        (["dead", "requeue", "a", "--all"], "say which: the ids of dead tasks, or --all"),
        (["tasks", "requeue", ""], "task id '' is not valid"),
        (["purge", "--yes"], "say which records: --state is one of cancelled, dead, failed, succe"),
        (
            ["tasks", "purge", "--state", "waiting"],
            "--state 'waiting' cannot be purged: --state is one of cancelled, dead, failed, "
            "succeeded; tasks that wait are cancelled: parsync tasks cancel --state waiting",
        ),
        (
            ["tasks", "--state", "lost"],
            "--state 'lost' is not known: known are waiting, placed, running",
        ),
        (["nodes", "--url", "http://host"], "it must be redis://HOST:PORT/DB"),
        (["nodes", "--cluster", "x y"], "setting cluster='x y' is not valid"),
        (["nodes", "--config", "no.toml"], "settings file no.toml cannot be read"),
        (["scheduler", "--partitions", "0"], "setting partitions=0 is not valid"),
        (["scheduler", "--gap-s", "-1"], "setting gap_s=-1.0 is not valid"),
        (["scheduler", "--strategy", "best"], "setting strategy='best' is not valid"),
        (["scheduler", "--name", "x y"], "scheduler name 'x y' is not valid"),
        (["scheduler", "--log-level", "loud"], "--log-level 'loud' is not known"),
        (["dev", "-A", "x", "--pool", "fibers"], "--pool 'fibers' is not known"),
        (["dev", "-A", "x", "--label", "zone"], "--label 'zone' is not valid"),
    ],
)
def test_a_bad_input_is_one_line_and_exit_code_2(words, says):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ["nodes"],
        ["partitions"],
        ["schedulers"],
        ["tasks"],
        ["status", "x"],
        ["purge", "--state", "dead", "--yes"],
    ],
)
def test_an_unreachable_server_is_one_line_without_its_password(impatient, words):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no answer from the server at 127.0.0.1:1: ")
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.output


def test_the_doctor_calls_an_unreachable_server_a_failed_check(impatient):
    result = run("doctor", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert [check["level"] for check in report["checks"]] == ["fail"]
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (
            {"redis_version": "6.2.14"},
            "is Redis 6.2.14; parsync needs Redis 7.0 or Valkey 7.2, or newer",
        ),
        (
            {"redis_version": "7.2.4", "maxmemory_policy": "allkeys-lru"},
            "evicts keys (maxmemory-policy allkeys-lru)",
        ),
    ],
)
@pytest.mark.parametrize("words", [["submit", "a.b"], ["nodes"], ["scheduler"]])
def test_a_server_that_will_not_do_is_refused(monkeypatch, info, says, words):
    monkeypatch.setattr("redis.Redis.info", lambda self, *sections: info)
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_ctrl_c_ends_quietly_with_130(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("parsync_redis.cli.cluster.make_client", interrupted)
    result = run("nodes")
    assert (result.exit_code, result.output) == (130, "")
