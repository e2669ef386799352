"""Limits that apps declare: workers register them, the policy outweighs them, the least counts."""

from typing import Any

import pytest
from celery import Celery

from parsync_redis import Parsync
from parsync_redis.errors import UnknownLimit
from parsync_redis.inspect.accounts import AccountExplainer
from parsync_redis.inspect.checkup import judge_declared
from parsync_redis.inspect.policy_outlook import foresee_policy
from parsync_redis.inspect.tenancy import read_limits
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import parse_resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.policy_reader import read_declared
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader.policy import PolicyDuty
from parsync_redis.store import Store
from parsync_redis.store.policy import (
    change_policy,
    find_drift,
    mend_drift,
    read_declaring,
    read_rows,
    set_values,
    stored_policy,
    view_policy,
)
from parsync_redis.store.reads.cancel import server_ms
from parsync_redis.store.reads.views import Directory
from tests.kit.driver import Driver
from tests.kit.servers import Servers

KIND = "work slots=1 under=stripe"
LEASE_S = 10.0


@pytest.fixture
def drive(store: Store) -> Driver:
    """Return a driver of an empty cluster on each real server: people are told ages by INFO."""
    return Driver(store)


def nothing() -> None:
    """Do nothing, as a task."""


class Leader:
    """A leader that looks at the policy."""

    def __init__(self, drive: Driver) -> None:
        self._duty = PolicyDuty(drive.store, LEASE_S)
        self._now_s = 0.0

    def look(self, times: int = 2) -> None:
        """Look so many times."""
        for _ in range(times):
            self._duty.work(self._now_s)
            self._now_s += LEASE_S / 2


def come(drive: Driver, node: str, limits: Any, app: str = "shop") -> None:
    """Let the worker of an app that declares limits tell its offer."""
    tasks = KnownTasks.of({"work": None}, read_declared(limits), app)
    offer = offer_with(parse_resources("slots=9"), tasks).text
    drive.run(drive.commands.offer(node, offer, tasks))


def go(drive: Driver, node: str) -> None:
    """Forget the offer of a node."""
    drive.run(drive.commands.offer(node, ""))


def submit(drive: Driver, id: str, limits: str = "stripe", declares: bool = False) -> str:
    """Submit a task under limits; return submit's word."""
    options = TaskOptions(limits=limits)
    task = Submission(id, "work", b"", options, declares_limits=declares)
    return drive.word(drive.commands.submit([task]))


def take(drive: Driver, kind: str = KIND) -> int:
    """Take what may be taken of a kind; return the number of tasks."""
    return len(drive.run(drive.commands.take("s1", [(kind, 9)])).tasks)


def ceilings(drive: Driver) -> dict[str, str]:
    """Return the ceilings of the first shard."""
    return read_rows(drive.store)[0]


def words_of_doctor(drive: Driver) -> list[str]:
    """Return what `parsync doctor` says of declared limits."""
    declaring = read_declaring(Directory(drive.store))
    return [check.text for check in judge_declared(stored_policy(drive.store), declaring)]


def test_a_limit_is_known_and_exact_as_soon_as_a_worker_has_declared_it(drive: Driver):
    come(drive, "n1", {"stripe": 2, "customer:*": 1})
    for id in "abc":
        assert submit(drive, id) == "submitted"
        assert submit(drive, f"{id}7", "customer:7") == "submitted"
    assert submit(drive, "d", "strpe") == "nolimit"
    assert (take(drive), take(drive, "work slots=1 under=customer:7")) == (2, 1)
    assert take(drive) == 0


def test_a_task_of_an_app_that_declares_its_limit_waits_for_the_apps_first_worker(drive: Driver):
    assert submit(drive, "a", declares=True) == "submitted"
    assert submit(drive, "b") == "nolimit"
    assert take(drive) == 0
    come(drive, "n1", {"stripe": 1})
    assert take(drive) == 1


def test_a_call_in_an_app_that_declares_its_limits_is_accepted_before_a_worker_has_come(
    drive: Driver, servers: Servers, server_kind: str
):
    words = []
    for limits in ({"stripe": 1}, {"strpe": 1}, None):
        app = Celery("shop", broker="memory://", set_as_current=False)
        server: Any = servers.get(server_kind)
        parsync = Parsync(app, url=server.url, cluster=drive.keys.cluster, limits=limits)
        charge = app.task(name="work", shared=False, parsync={"limits": ["stripe"]})(nothing)
        try:
            charge.delay()
            words.append("accepted")
        except UnknownLimit:
            words.append("refused")
        parsync.client.close()
    assert words == ["accepted", "refused", "refused"]
    come(drive, "n1", {"stripe": 1})
    assert take(drive) == 1


def test_a_task_of_an_app_that_declares_its_limit_is_refused_for_any_other_reason(drive: Driver):
    come(drive, "n1", {})
    options = TaskOptions(limits="stripe")
    task = Submission("a", "unheard", b"", options, declares_limits=True)
    assert drive.word(drive.commands.submit([task])) == "unknown"


def test_an_operators_entry_or_pattern_counts_in_place_of_what_apps_declare(drive: Driver):
    come(drive, "n1", {"stripe": 2, "customer:7": 3})
    change_policy(drive.store, lambda _: "[limits.stripe]\nat_once = 1\n", "maria")
    assert ceilings(drive)["stripe"] == "units=1"
    change_policy(drive.store, set_values(["limits.customer:*.at_once=1"]), "maria")
    assert ceilings(drive) == {"stripe": "units=1", "customer:*": "units=1"}
    come(drive, "n2", {"stripe": 9, "customer:7": 9})
    Leader(drive).look()
    assert ceilings(drive) == {"stripe": "units=1", "customer:*": "units=1"}
    change_policy(drive.store, set_values(["limits.stripe="]), "maria")
    assert ceilings(drive)["stripe"] == "units=2 declared=1"


def test_of_two_versions_the_least_counts_until_the_first_has_gone(drive: Driver):
    come(drive, "n1", {"stripe": {"at_once": 5, "rate": "10/s"}})
    come(drive, "n2", {"stripe": {"at_once": 3, "rate": "100/s"}})
    leader = Leader(drive)
    leader.look()
    assert ceilings(drive) == {"stripe": "units=3 rate=10/1000 burst=1 declared=1"}
    (text,) = words_of_doctor(drive)
    assert "limit stripe is declared differently: shop says at_once = 3" in text
    assert view_policy(drive.store).declared["stripe"]["declared_by"] == ["shop"]
    come(drive, "n1", {"stripe": {"at_once": 3, "rate": "100/s"}})
    leader.look()
    assert ceilings(drive) == {"stripe": "units=3 rate=100/1000 burst=10 declared=1"}
    assert words_of_doctor(drive) == []


def test_a_limit_outlives_its_workers_while_a_task_holds_it_or_waits_under_it(drive: Driver):
    come(drive, "n1", {"stripe": 1, "idle": 1})
    assert [submit(drive, id) for id in "ab"] == ["submitted"] * 2
    assert take(drive) == 1
    come(drive, "n1", {})
    leader = Leader(drive)
    leader.look()
    assert ceilings(drive) == {"stripe": "units=1 declared=1"}
    assert submit(drive, "c") == "submitted"
    for id in "abc":
        drive.cancel(id)
    leader.look()
    assert ceilings(drive) == {}


def test_a_pattern_outlives_its_workers_while_a_task_of_it_waits(drive: Driver):
    come(drive, "n1", {"customer:*": 1})
    submit(drive, "a", "customer:7")
    go(drive, "n1")
    leader = Leader(drive)
    leader.look()
    assert list(ceilings(drive)) == ["customer:*"]
    drive.cancel("a")
    leader.look()
    assert ceilings(drive) == {}


def test_a_policy_that_was_read_before_a_worker_came_does_not_remove_its_limits(drive: Driver):
    come(drive, "n1", {"stripe": 2, "customer:7": 1})
    rows = [("mail", "units=1"), ("customer:*", "units=4")]
    drive.run(drive.commands.set_policy(rows))
    assert ceilings(drive) == {"stripe": "units=2 declared=1", **dict(rows)}


USES = {
    "a worker has declared the limit again": lambda drive: come(drive, "n1", {"stripe": 2}),
    "a task waits under the limit": lambda drive: submit(drive, "a", declares=True),
    "a task holds the limit": lambda drive: (submit(drive, "a", declares=True), take(drive)),
}


@pytest.mark.parametrize("use", USES)
def test_a_limit_that_is_used_again_after_the_leaders_look_stays(drive: Driver, use: str):
    come(drive, "n1", {"stripe": 2, "customer:*": 1, "idle": 1})
    come(drive, "n1", {})
    drift = find_drift(drive.store)
    assert drift.undeclared == ["customer:*", "idle", "stripe"]
    USES[use](drive)
    submit(drive, "b", "customer:7", declares=True)
    mend_drift(drive.store, drift)
    assert ceilings(drive) == {
        "stripe": "units=2 declared=1",
        "customer:*": "units=1 declared=1",
    }


def test_a_removal_removes_no_ceiling_of_the_operator(drive: Driver):
    change_policy(drive.store, lambda _: "[limits.stripe]\nat_once = 1\n", "maria")
    assert drive.run(drive.commands.remove_declared(["stripe", "unheard"])) == 0
    assert ceilings(drive) == {"stripe": "units=1"}


def test_the_leader_logs_drifted_shards_and_limits_that_go(
    drive: Driver, caplog: pytest.LogCaptureFixture
):
    come(drive, "n1", {"stripe": 2, "idle": 1})
    come(drive, "n1", {"stripe": 2})
    drive.store.client.hdel(drive.keys.queue("policy"), "stripe")
    Leader(drive).look()
    assert ceilings(drive) == {"stripe": "units=2 declared=1"}
    (text,) = [record.message for record in caplog.records if record.name == "parsync.leader"]
    assert "shards [0] had other ceilings" in text
    assert "declares the limits idle any more" in text


DAMAGES = {
    "the text of the app": lambda client, keys, digest: client.hset(
        keys.queue("names"), digest, "\n stripe units=\n"
    ),
    "the ceiling": lambda client, keys, digest: client.hset(
        keys.queue("policy"), "stripe", "declared=1"
    ),
    "the ceilings": lambda client, keys, digest: client.delete(keys.queue("policy")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_registration_lets_no_task_run_above_the_limit_and_heals(
    drive: Driver, damage: str
):
    come(drive, "n1", {"stripe": 1})
    for id in "ab":
        submit(drive, id)
    (tasks,) = Directory(drive.store).newest_first()
    DAMAGES[damage](drive.store.client, drive.keys, tasks.digest)
    assert take(drive) <= 1
    come(drive, "n1", {"stripe": 1})
    Leader(drive).look()
    assert ceilings(drive) == {"stripe": "units=1 declared=1"}
    take(drive)
    assert take(drive) == 0


def test_people_are_told_who_declares_a_limit(drive: Driver):
    come(drive, "n1", {"stripe": 1, "customer:*": 2})
    for id in "ab":
        submit(drive, id)
    submit(drive, "c", "customer:7")
    take(drive)
    limits = {limit.name: limit for limit in read_limits(drive.store)}
    assert (limits["stripe"].allowed, limits["stripe"].declared_by) == (1, ["shop"])
    assert (limits["customer:7"].allowed, limits["customer:7"].declared_by) == (2, ["shop"])
    assert view_policy(drive.store).declared["stripe"] == {"at_once": 1, "declared_by": ["shop"]}
    why = AccountExplainer(drive.store, server_ms(drive.store)).why(KIND)
    assert why.startswith("limit stripe: 1 of 1 are held, the oldest (a) for ")
    outlook = foresee_policy(drive.store, "[limits.mail]\nat_once = 1\n")
    assert not outlook.blocks_for_ever
    (doubt,) = foresee_policy(drive.store, "[limits.stripe]\nat_once = 0\n").doubts
    assert doubt == "limits.stripe counts in place of what an app declares: at_once = 1"


def test_each_shard_has_a_declared_limit_divided(drive: Driver):
    drive.keys.shards = 3
    for shard in range(3):
        drive.run(drive.commands.fix_shards(shard, 3, 3))
    come(drive, "n1", {"stripe": 2})
    client: Any = drive.store.client
    texts = [client.hget(key, "stripe") for key in drive.keys.queues("policy")]
    assert texts == [b"units=2 declared=1 shards=3"] * 3
    change_policy(drive.store, lambda _: "[limits.mail]\nat_once = 1\n", "maria")
    assert [rows["stripe"] for rows in read_rows(drive.store).values()] == [
        "units=2 declared=1"
    ] * 3
