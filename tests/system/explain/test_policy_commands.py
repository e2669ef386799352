"""The commands about who goes first, on a cluster without processes."""

import json

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver

POLICY = """# of the shop
[tenants.acme]
weight = 3
at_most = {slots = 2}
[limits.stripe]
at_once = 2
rate = "600/m"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield a driver of a cluster with one node, a policy, two tasks that run and one that waits."""
    folder = tmp_path_factory.mktemp("policy")
    with EmbeddedServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARSYNC_URL", server.url)
        patch.setenv("PARSYNC_CLUSTER", "shop")
        patch.setenv("LOGNAME", "maria")
        patch.chdir(folder)
        (folder / "policy.toml").write_text(POLICY)
        store = Store.from_url(server.url, "shop")
        settings = Settings.load(url=server.url, cluster="shop", partitions=1)
        join_cluster(store, settings, create=True)
        drive = Driver(store)
        store.run(store.commands.renew_scheduler("s1", stats={"placed": 2}))
        drive.node("n1", 4)
        assert run("policy", "apply", "policy.toml").exit_code == 0
        for id in ("one", "two", "three"):
            options = TaskOptions(tenant="acme", limits="stripe")
            store.run(store.commands.submit([Submission(id, "charge", b"", options)]))
        for slot, (id, attempt) in enumerate(drive.take().items()):
            assert drive.start(drive.held(id, attempt, "n1", (slot,))) == "ok"
        yield drive
        store.client.close()


def run(*words):
    """Run a command."""
    return CliRunner().invoke(app, [*words])


def told(*words):
    """Run a command that succeeds; return what it prints."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.output


def test_show_prints_the_document_and_who_wrote_it(cluster):
    output = told("policy")
    assert output.startswith("# version 1, by maria, ")
    assert output.endswith(POLICY)
    assert json.loads(told("policy", "show", "--json"))["limits"]["stripe"]["rate"] == "600/m"


def test_limits_show_what_is_held_and_the_holders(cluster):
    (limit,) = json.loads(told("limits", "--json"))
    assert (limit["units"], limit["allowed"], limit["waiting"]) == (2, 2, 1)
    assert limit["oldest"]["node"] == "n1"
    head, row = told("limits").splitlines()
    assert head.split() == ["LIMIT", "HELD", "ALLOWED", "WAITING", "RATE", "USED", "OLDEST", "NOTE"]
    assert row.split()[:5] == ["stripe", "2", "2", "1", "600/m"]
    assert {line.split()[0] for line in told("limits", "stripe").splitlines()[1:]} == {"one", "two"}


def test_tenants_show_share_and_due(cluster):
    (tenant,) = json.loads(told("tenants", "--json"))
    assert (tenant["share"], tenant["due"], tenant["amounts"]) == (0.5, 1.0, {"slots": 2})
    assert "acme" in told("tenants")


def test_explain_and_plan_name_the_account(cluster):
    why = told("explain", "three")
    assert "task three (charge slots=1 for acme under stripe): waits" in why
    assert "tenant acme holds 2 of at most 2 slots, the oldest (one) for " in why
    assert " by n1" in why
    assert "when it starts is not known yet: tenant acme keeps it waiting" in why


def test_a_plan_under_an_unknown_limit_says_what_submit_would_say(cluster):
    plan = run("plan", "charge", "--limit", "strpe")
    assert plan.exit_code == 2
    assert "such a task (charge slots=1 under strpe): would be refused" in plan.output
    refusal = run("submit", "charge", "--limit", "strpe").output.removeprefix("error: ").strip()
    assert refusal.startswith("no limit 'strpe'; did you mean stripe?")
    assert refusal in plan.output
    waits = run("plan", "charge", "--limit", "strpe", "--wait-for-capacity")
    assert waits.exit_code == 1
    assert "no limit 'strpe' is in the policy or declared by a worker" in waits.output


def test_a_check_says_what_would_wait_for_ever_and_changes_nothing(cluster, tmp_path):
    file = tmp_path / "new.toml"
    file.write_text("[limits.stripe]\nat_once = 0\n[tenants.acme]\nat_least = {slots = 9}\n")
    result = run("policy", "check", str(file))
    assert result.exit_code == 1
    assert "limits.stripe.at_once: 2 -> 0" in result.output
    assert "warning: at_least of tenants adds up to slots=9; the nodes have 4" in result.output
    assert "1 task of charge slots=1 for=acme under=stripe would wait for ever" in result.output
    assert told("policy", "show").endswith(POLICY)


def test_a_mistake_is_one_line_and_exit_code_2(cluster, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text("[tenants.research]\nwieght = 3\n")
    result = run("policy", "apply", str(file))
    assert result.exit_code == 2
    assert result.output == ("error: unknown key tenants.research.wieght; did you mean weight?\n")


def test_set_changes_one_value_and_the_history_says_who(cluster):
    assert "limits.mail is new: at_once = 4" in told("policy", "set", "limits.mail.at_once=4")
    newest, first = json.loads(told("policy", "history", "--json"))
    assert (newest["version"], newest["by"]) == (2, "maria")
    assert newest["changes"] == "limits.mail is new: at_once = 4"
    assert "limits.mail is new" in told("policy", "history")
    assert first["version"] == 1
    told("policy", "set", "limits.mail=")
    assert "mail" not in told("limits")
    assert "policy" in told("events", "--event", "policy")


def test_doctor_compares_the_shards_with_the_document(cluster):
    checks = json.loads(run("doctor", "--json").output)["checks"]
    (check,) = [check for check in checks if check["name"] == "policy"]
    assert check["level"] == "ok"
    assert check["text"].endswith("1 tenants, 1 limits")
