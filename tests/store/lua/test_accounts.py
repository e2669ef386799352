"""Limits and ceilings of tenants: exact in the scripts, and counted anew after damage."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.replies import Took
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader.policy import PolicyDuty
from parsync_redis.store.policy import change_policy, set_values
from parsync_redis.store.repair.repair_all import repair_all
from parsync_redis.wire.keys import Keys
from tests.kit.driver import Driver
from tests.kit.rate import Rate, most_above, part_of_rate, take_at_rate

Damage = Callable[[Any, Keys], object]
KIND = "work slots=1 for=acme/web under=stripe"
UNDER = TaskOptions(tenant="acme/web", limits="stripe")


class Limited:
    """A cluster with a policy, and short words for what happens to its tasks."""

    def __init__(self, drive: Driver, *ceilings: tuple[str, str]) -> None:
        self.drive = drive
        self.run = drive.store.run
        self.commands = drive.commands
        self.client: Any = drive.store.client
        self.set(*ceilings)

    def set(self, *ceilings: tuple[str, str]) -> int:
        """Replace the ceilings."""
        return self.run(self.commands.set_policy(ceilings))

    def submit(self, ids: Sequence[str], options: TaskOptions = UNDER) -> list[str]:
        """Submit tasks named work."""
        return self.run(self.commands.submit([Submission(id, "work", b"", options) for id in ids]))

    def take(self, kind: str = KIND, limit: int = 99, salt: str = "") -> Took:
        """Take tasks of a kind, and hear of all changes."""
        return self.run(self.commands.take("s1", [(kind, limit)], salt=salt))

    def ids(self, kind: str = KIND, limit: int = 99) -> list[str]:
        """Take tasks of a kind; return their ids."""
        return [task.id for task in self.take(kind, limit).tasks]

    def line(self, account: str) -> str:
        """Return what a scheduler hears of an account."""
        return dict(self.run(self.commands.take("s1")).changes)[f"={account}"]

    def start(self, took: Took, number: int = 0) -> Place:
        """Start a task that was taken; return its place."""
        task = took.tasks[number]
        place = Place(task.id, task.attempt, 0, "n1", (number,), 1, 1)
        assert self.run(self.commands.start([place]))[0][0] == "ok"
        return place


@pytest.fixture
def limited(drive: Driver) -> Limited:
    """Return a cluster with the limit `stripe` of two units."""
    return Limited(drive, ("stripe", "units=2"), ("customer:*", "units=1"))


def test_a_take_gives_as_many_tasks_as_a_limit_has_room_for(limited: Limited):
    limited.submit("abcd")
    took = limited.take()
    assert [task.id for task in took.tasks] == ["a", "b"]
    assert took.changes[-1] == ("=stripe", "n=2 units=2 full of units=2")
    assert limited.ids() == []
    assert limited.client.zrange(limited.drive.keys.holders("stripe"), 0, -1) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["finish", "again", "cancel", "requeue", "give back", "dead"])
def test_a_task_that_ends_or_goes_back_leaves_its_accounts_once(limited: Limited, how: str):
    limited.submit("abc")
    took = limited.take()
    task = took.tasks[0]
    commands = limited.commands
    if how == "give back":
        call: Any = commands.give_back("s1", [("a", task.attempt, "", "")])
    else:
        place = limited.start(took)
        call = {
            "finish": commands.finish([(place, "succeeded", "")]),
            "again": commands.finish([(place, "again", "")]),
            "cancel": commands.finish([(place, "cancelled", "")]),
            "requeue": commands.requeue([(place, "lost")]),
            "dead": commands.requeue([(place, "lost")], delays_ms=[10**6]),
        }[how]
    limited.run(call)
    assert limited.line("stripe") == "n=1 units=1 of units=2"
    limited.run(call)
    assert limited.line("stripe") == "n=1 units=1 of units=2"
    assert limited.line("@acme") == limited.line("@acme/web") == "n=1 slots=1 of -"
    assert len(limited.ids()) == 1


def test_a_take_that_finds_no_task_leaves_no_line(limited: Limited):
    limited.submit("a")
    limited.run(limited.commands.finish([(limited.start(limited.take()), "succeeded", "")]))
    assert limited.ids() == []
    assert limited.client.exists(limited.drive.keys.queue("accounts")) == 0


@pytest.mark.parametrize("how", ["finish", "requeue", "cancel", "give back", "undo"])
@pytest.mark.parametrize("limit", [9, 2], ids=["refused", "marked"])
def test_a_holder_that_leaves_a_full_account_wakes_a_scheduler(
    limited: Limited, how: str, limit: int
):
    commands = limited.commands
    other_kind = KIND.replace("work", "other")
    limited.run(commands.submit([Submission("z", "other", b"", UNDER)]))
    limited.submit("abc")
    took = limited.run(commands.take("s1", [(KIND, limit), (other_kind, 0)], waits="wait"))
    task = took.tasks[0]
    calls: Any = {
        "finish": lambda: commands.finish([(limited.start(took), "succeeded", "")]),
        "requeue": lambda: commands.requeue([(limited.start(took), "lost")]),
        "cancel": lambda: commands.cancel(["a"]),
        "give back": lambda: commands.give_back("s1", [("a", task.attempt, "", "")]),
        "undo": lambda: commands.give_back("s1", [("a", task.attempt, "undo", "")]),
    }
    call = calls[how]()
    channel = f"{limited.drive.keys.wakes()}:s1"
    assert limited.drive.heard(lambda: limited.run(call), channel) == [(channel, b"wake")]


def test_a_take_of_no_task_marks_full_accounts_only(limited: Limited):
    limited.submit("abc")
    assert limited.ids(limit=1) == ["a"]
    assert limited.ids(limit=0) == []
    assert limited.line("stripe") == "n=1 units=1 of units=2"
    assert limited.ids(limit=1) == ["b"]
    assert limited.line("stripe") == "n=2 units=2 of units=2"
    assert limited.ids(limit=0) == []
    assert limited.line("stripe") == "n=2 units=2 full of units=2"


def test_units_patterns_and_the_exact_entry(limited: Limited):
    limited.set(("customer:*", "units=1"), ("customer:7", "units=3"))
    seven = TaskOptions(limits="customer:7*2")
    eight = TaskOptions(limits="customer:8")
    limited.submit("ab", seven)
    limited.submit("cd", eight)
    assert limited.ids("work slots=1 under=customer:7*2") == ["a"]
    assert limited.ids("work slots=1 under=customer:8") == ["c"]


def test_a_tenant_holds_at_most_its_ceiling_in_every_amount(limited: Limited):
    limited.set(("@acme", "slots=4 gpu=1"), ("@acme/*", "slots=3"))
    options = TaskOptions.of({"resources": {"gpu": 0.5}})
    kinds = []
    for tenant, names in (("acme/a", "abc"), ("acme/b", "def")):
        chosen = TaskOptions(options.needs, tenant=tenant)
        limited.submit(names, chosen)
        kinds.append(f"work slots=1 gpu=0.5 for={tenant}")
    assert limited.ids(kinds[0]) == ["a", "b"]
    assert limited.ids(kinds[1]) == []
    assert limited.line("@acme") == "n=2 slots=2 gpu=1 full of slots=4 gpu=1"
    assert limited.line("@acme/a") == "n=2 slots=2 gpu=1 full of slots=3"


def test_a_limit_that_the_policy_does_not_know_is_refused_or_waits(limited: Limited):
    strange = TaskOptions(limits="strpe")
    assert limited.submit("a", strange) == ["nolimit"]
    waits = TaskOptions(limits="strpe", wait_for_capacity=True)
    assert limited.submit("b", waits) == ["submitted"]
    assert limited.ids("work slots=1 under=strpe") == []
    limited.set(("strpe", "units=1"))
    assert limited.ids("work slots=1 under=strpe") == ["b"]


def test_a_limit_of_zero_pauses_and_a_higher_one_wakes(limited: Limited):
    limited.submit("abc")
    limited.set(("stripe", "units=0"))
    assert limited.ids() == []
    assert limited.set(("stripe", "units=1")) == 1
    assert limited.ids() == ["a"]
    limited.set(("stripe", "units=0"))
    assert limited.line("stripe") == "n=1 units=1 of units=0"


def test_a_rate_gives_its_burst_and_then_says_when(limited: Limited):
    limited.set(("stripe", "rate=60/60000 burst=3"))
    limited.submit("abcdef")
    took = limited.take()
    assert [task.id for task in took.tasks] == ["a", "b", "c"]
    assert took.due_ms is not None
    assert 900 <= took.due_ms - took.now_ms <= 1000
    rows: Any = [(task.id, task.attempt, "undo", "") for task in took.tasks[1:]]
    limited.run(limited.commands.give_back("s1", rows))
    assert limited.ids() == ["b", "c"], "an undone take gives its token back"


@pytest.mark.parametrize("rate", [Rate(6000, 60_000, 10), Rate(7000, 60_000, 4)], ids=str)
def test_a_rate_is_never_exceeded_in_any_window_and_used_while_tasks_wait(
    drive: Driver, rate: Rate
):
    takes = take_at_rate(drive.store, rate, seconds=2)
    assert takes[0].count == rate.burst
    assert most_above(takes, rate) < 0.01, "the line keeps thousandths of a ms"
    assert part_of_rate(takes, rate) >= 0.97


def _write(account: str, text: str) -> Damage:
    return lambda client, keys: client.hset(keys.queue("accounts"), account, text)


def _ceiling(text: str) -> Damage:
    return lambda client, keys: client.hset(keys.queue("policy"), "stripe", text)


DAMAGES: dict[str, Damage] = {
    "a line cut behind its number": _write("stripe", "n=2"),
    "a line without a digit": _write("stripe", "n=2 units="),
    "a line with too few units": _write("stripe", "n=2 units=1"),
    "a line with a strange word": _write("stripe", "n=2 units=2 x"),
    "the line": lambda client, keys: client.hset(keys.queue("accounts"), "stripe", "junk"),
    "the line is gone": lambda client, keys: client.hdel(keys.queue("accounts"), "stripe"),
    "all lines": lambda client, keys: client.delete(keys.queue("accounts")),
    "the type of the lines": lambda client, keys: (
        client.delete(keys.queue("accounts")),
        client.set(keys.queue("accounts"), "x"),
    ),
    "the holders": lambda client, keys: client.delete(keys.holders("stripe")),
    "a holder": lambda client, keys: client.zrem(keys.holders("stripe"), "a"),
    "a stray holder": lambda client, keys: client.zadd(keys.holders("stripe"), {"zzz": 1}),
    "the type of the holders": lambda client, keys: (
        client.delete(keys.holders("stripe")),
        client.set(keys.holders("stripe"), "x"),
    ),
    "line and holders": lambda client, keys: client.delete(
        keys.holders("stripe"), keys.queue("accounts")
    ),
}


CEILING_DAMAGES: dict[str, Damage] = {
    "gone": lambda client, keys: client.delete(keys.queue("policy")),
    "no entry": lambda client, keys: client.hdel(keys.queue("policy"), "stripe"),
    "another type": lambda client, keys: (
        client.delete(keys.queue("policy")),
        client.set(keys.queue("policy"), "x"),
    ),
    "junk": _ceiling("junk"),
    "empty": _ceiling(""),
    "blank": _ceiling(" "),
    "no digit": _ceiling("units="),
    "no number": _ceiling("units=x"),
    "a strange word": _ceiling("units=3 x"),
    "a rate of nothing": _ceiling("rate=0/60000"),
    "a rate in no time": _ceiling("rate=5/0"),
    "a rate cut": _ceiling("units=3 rate=5"),
    "too long": _ceiling("units=3" + " units=3" * 1000),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_account_takes_nothing_and_is_counted_anew(limited: Limited, damage: str):
    limited.set(("stripe", "units=3"))
    limited.submit("abcdef")
    took = limited.take(limit=2)
    limited.start(took)
    DAMAGES[damage](limited.client, limited.drive.keys)
    if damage != "line and holders":  # nothing is left that could contradict
        assert limited.ids() == []
    assert repair_all(limited.drive.store, dry=True), "the audit names the damage"
    assert repair_all(limited.drive.store)
    assert repair_all(limited.drive.store, dry=True) == []
    assert limited.line("stripe").startswith("n=2 units=2 of")
    assert limited.ids() == ["c"]


@pytest.mark.parametrize("how", ["recount", "repair_task"])
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "line and holders"])
def test_the_first_count_after_damage_misses_no_held_task(limited: Limited, damage: str, how: str):
    """A count of the holders that are left would give room to tasks beyond the ceiling."""
    limited.set(("stripe", "units=3"))
    limited.submit("abcdef")
    took = limited.take(limit=2)
    limited.start(took, 1)
    DAMAGES[damage](limited.client, limited.drive.keys)
    count = limited.commands.recount(["stripe", "@acme", "@acme/web"])
    repair: Any = limited.commands.repair_task("b", "why")
    limited.run(repair if how == "repair_task" else count)
    taken = limited.ids()
    limited.run(count)
    assert [*taken, *limited.ids()] == ["c"]
    assert limited.line("stripe").startswith("n=3 units=3 full of")


def test_a_rate_has_nothing_left_after_damage(limited: Limited):
    limited.set(("stripe", "rate=1/60000 burst=4"))
    limited.submit("abcdef")
    assert limited.ids(limit=3) == ["a", "b", "c"]
    limited.client.delete(limited.drive.keys.holders("stripe"))
    assert limited.ids() == []
    limited.run(limited.commands.recount(["stripe"]))
    took = limited.take()
    assert took.tasks == []
    assert took.due_ms is not None
    assert 50_000 < took.due_ms - took.now_ms <= 60_000


@pytest.mark.parametrize("damage", CEILING_DAMAGES)
def test_a_limit_takes_nothing_while_its_ceiling_is_damaged_and_the_leader_writes_it_anew(
    limited: Limited, damage: str
):
    store = limited.drive.store
    change_policy(store, set_values(["limits.stripe.at_once=3"]), "anna")
    limited.submit("abcd")
    assert limited.ids(limit=2) == ["a", "b"]
    CEILING_DAMAGES[damage](limited.client, limited.drive.keys)
    assert limited.ids() == []
    ceiling = "-" if damage in ("gone", "no entry") else "?"
    assert limited.line("stripe").endswith(f" of {ceiling}")
    repair_all(store)
    leader = PolicyDuty(store, lease_s=1.0)
    leader.work(0.0)
    leader.work(0.5)
    assert limited.line("stripe") == "n=2 units=2 of units=3"
    assert limited.ids() == ["c"]


@pytest.mark.parametrize("text", ["junk", "slots=", "slots=1 x", "slots=1" + " gpu=1" * 1000])
def test_a_tenant_takes_nothing_while_its_ceiling_cannot_be_read(limited: Limited, text: str):
    limited.submit("ab", TaskOptions(tenant="acme"))
    limited.client.hset(limited.drive.keys.queue("policy"), "@acme", text)
    took = limited.take("work slots=1 for=acme", 1)
    assert took.tasks == []
    assert dict(took.changes)["=@acme"] == "damaged of ?", "a scheduler offers no more seats"
    limited.set(("@acme", "slots=1"))
    assert limited.ids("work slots=1 for=acme") == ["a"]


@pytest.mark.parametrize("how_known", ["taken", "running"])
def test_after_lost_writes_a_limit_counts_what_the_server_still_knows_and_is_exact(
    limited: Limited, how_known: str
):
    limited.submit("abcde")
    took = limited.take(limit=1)
    known = limited.start(took) if how_known == "running" else None
    lose_writes = limited.drive.keep_shard()
    known = known or limited.start(took)
    forgotten = limited.start(limited.take())
    finish = limited.commands.finish([(known, "succeeded", ""), (forgotten, "succeeded", "")])
    lose_writes()
    assert limited.line("stripe") == "n=1 units=1 of units=2"
    again = limited.take(salt=".7")
    assert [task.id for task in again.tasks] == ["b"], "there is room for one"
    assert again.tasks[0].attempt != forgotten.attempt
    limited.start(again)
    words = limited.run(finish)
    assert words[1] == "stale", "a run whose take was lost ends nothing"
    assert limited.ids() == (["c"] if words[0] == "ok" else [])
    assert limited.line("stripe") == "n=2 units=2 full of units=2"


@pytest.mark.parametrize(
    ("account", "text"),
    [("str ipe", "units=1"), ("stripe", "five"), ("", "units=1"), ("stripe", "units=1\n")],
)
def test_a_malformed_ceiling_changes_nothing(limited: Limited, account: str, text: str):
    with pytest.raises(Exception, match="PSARGS"):
        limited.set(("customer:*", "units=7"), (account, text))
    assert limited.client.hgetall(limited.drive.keys.queue("policy")) == {
        b"stripe": b"units=2",
        b"customer:*": b"units=1",
    }


def test_a_kind_with_malformed_accounts_is_refused(limited: Limited):
    for tenant, limits in (("A", ""), ("a/b/c/d", ""), ("", "a*0"), ("", "a,,b")):
        options = TaskOptions(tenant=tenant, limits=limits)
        with pytest.raises(Exception, match="PSARGS"):
            limited.submit("x", options)
    assert limited.drive.store.states(["x"]) == [""]


def test_a_tenant_with_a_ceiling_takes_nothing_while_the_policy_cannot_be_read(limited: Limited):
    limited.set(("@acme", "slots=1"))
    tenant = TaskOptions(tenant="acme")
    limited.submit("ab", tenant)
    policy = limited.drive.keys.queue("policy")
    limited.client.delete(policy)
    limited.client.set(policy, "x")
    assert limited.ids("work slots=1 for=acme") == []
    limited.client.delete(policy)
    limited.set(("@acme", "slots=1"))
    assert limited.ids("work slots=1 for=acme") == ["a"]


def test_holders_of_another_type_of_a_tenant_without_a_ceiling_stop_no_take(limited: Limited):
    limited.submit("a", TaskOptions(tenant="beta"))
    holders = limited.drive.keys.holders("@beta")
    limited.client.set(holders, "x")
    assert limited.ids("work slots=1 for=beta") == ["a"]
    assert repair_all(limited.drive.store)
    assert limited.line("@beta") == "n=1 slots=1 of -"


@pytest.mark.parametrize("name", ["next", "units", "shards", "rate", "burst"])
def test_a_resource_with_the_name_of_a_word_does_not_count_to_a_tenant(limited: Limited, name: str):
    options = TaskOptions.of({"resources": {name: 2}})
    limited.submit("a", TaskOptions(options.needs, tenant="acme"))
    kind = f"work slots=1 {name}=2 for=acme"
    assert limited.ids(kind) == ["a"]
    assert limited.line("@acme") == "n=1 slots=1 of -"


@pytest.mark.unaudited
def test_a_damaged_line_with_accounts_stops_no_other_outcome(limited: Limited):
    limited.submit("ab")
    took = limited.take()
    places = [limited.start(took, number) for number in range(2)]
    tasks = limited.drive.keys.queue("tasks")
    limited.client.hset(tasks, "a", "junk for=acme")
    words = limited.run(limited.commands.finish([(place, "succeeded", "") for place in places]))
    assert words[1] == "ok"


@pytest.mark.unaudited
def test_an_end_and_a_retry_with_a_damaged_queue_in_one_call_are_carried_out(limited: Limited):
    limited.submit("ab")
    took = limited.take()
    places = [limited.start(took, number) for number in range(2)]
    pending = limited.drive.keys.pending(KIND)
    limited.client.delete(pending)
    limited.client.set(pending, "x")
    words = limited.run(
        limited.commands.finish([(places[0], "succeeded", ""), (places[1], "again", "")])
    )
    assert words == ["ok", "again"]


def test_a_rate_that_is_not_used_up_any_more_leaves_no_line(limited: Limited):
    limited.set(("stripe", "rate=1000/1000 burst=1"))
    limited.submit("a")
    limited.run(limited.commands.finish([(limited.start(limited.take()), "succeeded", "")]))
    limited.run(limited.commands.take("s1"))
    words = [limited.run(limited.commands.recount(["stripe"]))[0] for _ in range(100)]
    assert {*words} <= {"sound", "idle"}
    assert not limited.client.hexists(limited.drive.keys.queue("accounts"), "stripe")


@pytest.mark.parametrize("first", ["recount", "repair_task"])
def test_a_run_whose_line_is_lost_keeps_its_accounts(limited: Limited, first: str):
    limited.set(("stripe", "units=4"), ("customer:*", "units=9"))
    options = TaskOptions(tenant="acme/web", limits="customer:7,stripe*2")
    kind = "work slots=1 for=acme/web under=customer:7,stripe*2"
    message = b'{"headers": {"task": "work"}}'
    limited.run(limited.commands.submit([Submission(id, "work", message, options) for id in "abc"]))
    took = limited.take(kind, 2)
    for number in range(2):
        limited.start(took, number)
    limited.client.hdel(limited.drive.keys.queue("tasks"), "a")
    if first == "recount":
        limited.run(limited.commands.recount(["stripe", "customer:7", "@acme", "@acme/web"]))
        assert limited.ids(kind) == []
    assert limited.run(limited.commands.repair_task("a", "why")) == "running"
    assert limited.drive.line("a").kind == kind
    assert limited.ids(kind) == [], "both runs count"
    repair_all(limited.drive.store)
    assert repair_all(limited.drive.store, dry=True) == []
    assert limited.line("stripe").startswith("n=2 units=4 full of")
    assert limited.line("@acme/web").startswith("n=2 slots=2 of")


def test_a_run_that_has_lost_its_line_keeps_a_limit_whose_line_is_damaged(limited: Limited):
    limited.set(("stripe", "units=1"))
    message = b'{"headers": {"task": "work"}}'
    options = TaskOptions(limits="stripe")
    limited.run(limited.commands.submit([Submission(id, "work", message, options) for id in "ab"]))
    kind = "work slots=1 under=stripe"
    limited.start(limited.take(kind, 1))
    limited.client.hdel(limited.drive.keys.queue("tasks"), "a")
    limited.client.hset(limited.drive.keys.queue("accounts"), "stripe", "n=x")
    assert limited.run(limited.commands.repair_task("a", "why")) == "running"
    assert limited.drive.line("a").kind == kind
    repair_all(limited.drive.store)
    assert limited.ids(kind) == [], "the run counts"


def test_kinds_of_one_take_share_the_room_of_their_limit(limited: Limited):
    limited.set(("stripe", "units=3"))
    rows = []
    for tenant in ("acme", "mill"):
        limited.submit(
            [f"{tenant}{n}" for n in range(2)], TaskOptions(tenant=tenant, limits="stripe")
        )
        rows.append((f"work slots=1 for={tenant} under=stripe", 9))
    took = limited.run(limited.commands.take("s1", rows))
    assert [task.id for task in took.tasks] == ["acme0", "acme1", "mill0"]
    assert limited.line("stripe") == "n=3 units=3 full of units=3"


def test_a_kind_that_a_take_asks_for_twice_is_given_once(limited: Limited):
    limited.set(("stripe", "units=9"))
    limited.submit("abc")
    took = limited.run(limited.commands.take("s1", [(KIND, 0), (KIND, 1), (KIND, 2)]))
    assert [task.id for task in took.tasks] == ["a"]
    assert limited.ids() == ["b", "c"]


def test_more_than_a_thousand_accounts_of_one_take_have_their_own_ceilings(limited: Limited):
    """A command has 1,000 fields; here are 1,200 accounts and 801 patterns."""
    limited.set(("@t399/u", "slots=0"), ("@t398/u/*", "slots=0"))
    ids = [f"id{n}" for n in range(400)]
    tenants = [f"t{n}/u/v" for n in range(400)]
    limited.run(
        limited.commands.submit(
            [
                Submission(id, "work", b"", TaskOptions(tenant=tenant))
                for id, tenant in zip(ids, tenants, strict=True)
            ]
        )
    )
    rows = [(f"work slots=1 for={tenant}", 1) for tenant in tenants]
    took = limited.run(limited.commands.take("s1", rows))
    assert [task.id for task in took.tasks] == ids[:398]
    accounts = limited.drive.keys.queue("accounts")
    marked = {b"@t399/u": b"n=0 full", b"@t398/u/v": b"n=0 full"}
    assert limited.client.hlen(accounts) == 3 * 398 + len(marked)
    limited.run(
        limited.commands.give_back("s1", [(task.id, task.attempt, "", "") for task in took.tasks])
    )
    assert limited.client.hgetall(accounts) == marked
