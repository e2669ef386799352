"""The policy is written whole, by one operator at a time, and the shards follow the document."""

from typing import Any

import pytest

from parsync_redis.errors import DamagedState, InvalidInput
from parsync_redis.inspect.accounts import AccountExplainer
from parsync_redis.inspect.checkup import judge_policy
from parsync_redis.inspect.policy_outlook import foresee_policy
from parsync_redis.inspect.tenancy import read_holders_of, read_limits, read_tenants
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader.policy import PolicyDuty
from parsync_redis.store import Store
from parsync_redis.store.policy import (
    MAX_VERSIONS_KEPT,
    change_policy,
    find_drift,
    read_rows,
    set_values,
    settle_policy,
    stored_policy,
)
from parsync_redis.store.reads.cancel import server_ms
from tests.kit.driver import Driver, dump

STRIPE = "[limits.stripe]\nat_once = 2\n"
ACME = "[tenants.acme]\nat_most = {slots = 1}\n"


@pytest.fixture
def drive(store: Store) -> Driver:
    """Return a driver of an empty cluster on each real server: people are told ages by INFO."""
    return Driver(store)


def apply(store: Store, document: str, by: str = "maria") -> list[str]:
    """Apply a document; return what has changed."""
    return change_policy(store, lambda _: document, by)[1]


def submit(drive: Driver, id: str, tenant: str = "", limits: str = "") -> None:
    """Submit a task that counts to these accounts."""
    options = TaskOptions(tenant=tenant, limits=limits)
    assert drive.word(drive.commands.submit([Submission(id, "work", b"", options)])) == "submitted"


def level_of(store: Store) -> str:
    """Return the level of the check of `parsync doctor`."""
    return judge_policy(stored_policy(store), find_drift(store).shards).level


def test_a_document_is_kept_as_it_was_written_and_the_shard_has_its_ceilings(drive: Driver):
    document = f"# ours\n{STRIPE}"
    assert apply(drive.store, document) == ["limits.stripe is new: at_once = 2"]
    stored = stored_policy(drive.store)
    assert (stored.text, stored.version, stored.versions[0].by) == (document, 1, "maria")
    assert read_rows(drive.store) == {0: {"stripe": "units=2"}}
    assert level_of(drive.store) == "ok"


def test_a_document_with_a_mistake_changes_nothing(drive: Driver):
    apply(drive.store, STRIPE)
    before = dump(drive.store)
    with pytest.raises(InvalidInput, match="did you mean at_once"):
        apply(drive.store, "[limits.stripe]\nat_onec = 5")
    assert dump(drive.store) == before


def test_a_document_that_is_applied_again_is_no_new_version(drive: Driver):
    apply(drive.store, STRIPE)
    assert apply(drive.store, STRIPE, by="anna") == []
    assert stored_policy(drive.store).versions[0].by == "maria"


def test_the_second_of_two_operators_is_told_and_the_first_ones_policy_counts(drive: Driver):
    apply(drive.store, STRIPE)

    def meanwhile(_: Any) -> str:
        apply(drive.store, STRIPE + ACME, by="anna")
        return "[limits.stripe]\nat_once = 9\n"

    with pytest.raises(InvalidInput, match="anna has changed the policy since it was read"):
        change_policy(drive.store, meanwhile, "maria")
    assert stored_policy(drive.store).text == STRIPE + ACME
    assert read_rows(drive.store) == {0: {"stripe": "units=2", "@acme": "slots=1"}}


def test_a_version_that_is_not_the_stored_one_writes_nothing(drive: Driver):
    apply(drive.store, STRIPE)
    for version in (0, 2):
        call = drive.commands.write_policy(version, "[limits]", "anna", "nothing", "[]")
        answer = drive.unchanged_by(call)
        assert (answer.is_written, answer.version, answer.by) == (False, 1, "maria")


def test_the_last_ten_versions_say_who_changed_what(drive: Driver):
    for number in range(MAX_VERSIONS_KEPT + 2):
        apply(drive.store, f"[limits.stripe]\nat_once = {number}", by=f"maria{number}")
    versions = stored_policy(drive.store).versions
    assert [version.version for version in versions] == [*range(12, 2, -1)]
    assert versions[1].by == "maria10"
    assert versions[1].changes == "limits.stripe.at_once: 9 -> 10"


def test_a_change_of_the_policy_is_an_event(drive: Driver):
    apply(drive.store, STRIPE)
    client: Any = drive.store.client
    ((_, fields),) = client.xrange(drive.keys.shared("events"))
    assert fields[b"event"] == b"policy"
    assert fields[b"by"] == b"maria"
    assert fields[b"why"] == b"limits.stripe is new: at_once = 2"


def test_a_value_is_set_and_an_unchanged_document_keeps_its_comments(drive: Driver):
    apply(drive.store, f"# ours\n{STRIPE}")
    change_policy(drive.store, set_values(["limits.stripe.at_once=2"]), "anna")
    assert stored_policy(drive.store).text.startswith("# ours")
    _, changes = change_policy(
        drive.store, set_values(["limits.stripe.at_once=3", "limits.mail.rate=1/s"]), "anna"
    )
    assert changes == ["limits.stripe.at_once: 2 -> 3", 'limits.mail is new: rate = "1/s"']


def test_shards_that_are_ahead_of_the_document_are_noticed_and_settled(drive: Driver):
    apply(drive.store, STRIPE)
    drive.run(drive.commands.set_policy([("stripe", "units=9")], 0))
    assert level_of(drive.store) == "warn"
    assert settle_policy(drive.store) == [0]
    assert read_rows(drive.store) == {0: {"stripe": "units=2"}}
    assert settle_policy(drive.store) == []
    assert level_of(drive.store) == "ok"


def test_shards_without_a_document_stay_as_they_are(drive: Driver):
    drive.run(drive.commands.set_policy([("stripe", "units=9")], 0))
    assert (find_drift(drive.store).shards, settle_policy(drive.store)) == ([], [])
    assert read_rows(drive.store) == {0: {"stripe": "units=9"}}


def test_the_leader_settles_what_it_finds_twice_in_a_row(drive: Driver):
    apply(drive.store, STRIPE)
    drive.run(drive.commands.set_policy([("stripe", "units=9")], 0))
    leader = PolicyDuty(drive.store, lease_s=3.0)
    leader.work(0.0)
    leader.work(1.4)
    assert read_rows(drive.store) == {0: {"stripe": "units=9"}}
    leader.work(1.5)
    assert read_rows(drive.store) == {0: {"stripe": "units=2"}}


def test_a_damaged_document_is_named_and_can_be_replaced(drive: Driver):
    apply(drive.store, STRIPE)
    drive.store.client.hset(drive.keys.shared("policy"), "text", "[limits")
    with pytest.raises(DamagedState, match="apply the document again"):
        settle_policy(drive.store)
    assert read_rows(drive.store) == {0: {"stripe": "units=2"}}
    apply(drive.store, STRIPE)
    assert stored_policy(drive.store).version == 2


def test_a_process_that_dies_between_leaves_all_shards_ahead_of_the_document(drive: Driver):
    drive.keys.shards = 3
    apply(drive.store, STRIPE)
    client: Any = drive.store.client

    def die() -> None:
        if all(client.hexists(key, "@acme") for key in drive.keys.queues("policy")):
            raise InterruptedError

    drive.store.before = die
    with pytest.raises(InterruptedError):
        apply(drive.store, STRIPE + ACME)
    drive.store.before = lambda: None
    assert stored_policy(drive.store).text == STRIPE
    assert settle_policy(drive.store) == [0, 1, 2]
    assert read_rows(drive.store) == {shard: {"stripe": "units=2"} for shard in range(3)}


def test_every_shard_gets_the_ceilings(drive: Driver):
    drive.keys.shards = 3
    apply(drive.store, STRIPE)
    assert read_rows(drive.store) == {shard: {"stripe": "units=2"} for shard in range(3)}
    drive.run(drive.commands.set_policy([], 1))
    assert settle_policy(drive.store) == [1]


def test_the_reason_names_who_holds_a_limit_and_who_paused_it(drive: Driver):
    apply(drive.store, STRIPE)
    for id in "abc":
        submit(drive, id, limits="stripe")
    drive.take()
    kind = drive.line("c").kind
    why = AccountExplainer(drive.store, server_ms(drive.store)).why(kind)
    assert why.startswith("limit stripe: 2 of 2 are held, the oldest (a) for ")
    change_policy(drive.store, set_values(["limits.stripe.at_once=0"]), "anna")
    why = AccountExplainer(drive.store, server_ms(drive.store)).why(kind)
    assert why.startswith("limit stripe is 0: paused by anna, ")


def test_the_reason_says_when_a_rate_lets_the_next_start(drive: Driver):
    apply(drive.store, "[limits.stripe]\nrate = '1/h'")
    for id in "ab":
        submit(drive, id, limits="stripe")
    drive.take()
    why = AccountExplainer(drive.store, server_ms(drive.store)).why(drive.line("b").kind)
    assert why.startswith("limit stripe: 1 in an hour are used up; the next in ")


def test_limits_and_tenants_show_what_is_held_and_what_waits(drive: Driver):
    apply(drive.store, STRIPE + ACME)
    for id in "abc":
        submit(drive, id, tenant="acme", limits="stripe")
    drive.take()
    (limit,) = read_limits(drive.store)
    assert (limit.units, limit.allowed, limit.waiting) == (1, 2, 2)
    assert limit.oldest is not None
    assert limit.oldest.id == "a"
    (tenant,) = read_tenants(drive.store)
    assert (tenant.name, tenant.amounts, tenant.waiting) == ("acme", {"slots": 1}, 2)
    assert tenant.oldest_ms is not None
    assert [holder.id for holder in read_holders_of(drive.store, "stripe")] == ["a"]
    assert [holder.id for holder in read_holders_of(drive.store, "@acme")] == ["a"]


def test_the_holders_of_a_misspelled_limit_are_refused(drive: Driver):
    apply(drive.store, STRIPE)
    with pytest.raises(
        InvalidInput, match="no limit 'strpe' is in the policy or declared by a worker; did"
    ):
        read_holders_of(drive.store, "strpe")


def test_a_dry_run_names_tasks_that_would_wait_for_ever(drive: Driver):
    apply(drive.store, STRIPE)
    submit(drive, "a", limits="stripe*2")
    outlook = foresee_policy(drive.store, "[limits.stripe]\nat_once = 1")
    assert outlook.blocks_for_ever
    assert [kind.waiting for kind in outlook.blocked] == [1]
    assert not foresee_policy(drive.store, STRIPE).blocks_for_ever
    assert foresee_policy(drive.store, "[limits.mail]\nat_once = 1").blocks_for_ever


def test_a_list_of_tasks_costs_as_many_reads_for_many_limits_as_for_one(drive: Driver):
    apply(drive.store, "[limits.'customer:*']\nat_once = 0")
    client: Any = drive.store.client
    counts = []
    for number in (1, 30):
        ids = [f"t{number}-{n}" for n in range(number)]
        for n, id in enumerate(ids):
            submit(drive, id, limits=f"customer:{n}")
        kinds = [task.kind for task in drive.store.statuses(ids)]
        client.config_resetstat()
        explainer = AccountExplainer(drive.store, server_ms(drive.store), is_brief=True)
        explainer.read(kinds)
        assert all("paused by maria" in explainer.why(kind) for kind in kinds)
        stats = client.info("commandstats")
        counts.append(stats["cmdstat_hmget"]["calls"] + stats["cmdstat_hgetall"]["calls"])
    assert counts[0] == counts[1]
