"""AccountsCopy in the core: a kind whose account has no room takes no seats until it has."""

from math import inf

import pytest

from parsync_redis.model.kind import Kind
from parsync_redis.model.replies import Took
from parsync_redis.scheduler.core.accounts import AccountsCopy, asks_of
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.full_accounts import KINDS_AT_ONCE, LOOKS_AT_ONCE, MARKS_AT_ONCE
from parsync_redis.scheduler.core.queue import QueueCopy
from parsync_redis.scheduler.core.view import View
from parsync_redis.scheduler.core.warm_sets import WarmSets
from tests.kit.core_rig import Queue, make, marks, node, reasons, see, takes

STRIPE = "work slots=1 under=stripe"


def sees(slots: int = 50, shards: int = 1) -> Core:
    """Return a core that sees so many free slots."""
    core = make(shards=shards)
    see(core, 0, [node("n", slots)], slots)
    return core


def told(queue: Queue) -> Queue:
    """Tell the core what has changed in a queue; return the queue."""
    queue.core.on_wake(queue.shard)
    queue.tell()
    return queue


def written(core: Core) -> dict[str, str]:
    """Let the core's turn of a gap come; return the reasons that it writes."""
    core.on_tick(core.counters.ticks)
    return dict(reasons(core.plan(confirm=False)))


@pytest.mark.parametrize(
    ("kind", "lines", "tasks"),
    [
        (STRIPE, {}, inf),
        (STRIPE, {"stripe": "n=2 units=2 of units=5"}, 3),
        (STRIPE, {"stripe": "n=9 units=9 of units=5"}, -4),
        (STRIPE, {"stripe": "n=0 of -"}, 0),
        (STRIPE, {"stripe": "damaged"}, 0),
        (STRIPE, {"stripe": "damaged of ?"}, 0),
        (STRIPE, {"stripe": "n=0 of units=0"}, 0),
        ("work slots=1 under=a,stripe*2", {"stripe": "n=1 units=1 of units=6"}, 2),
        ("work slots=1 under=a,stripe*2", {"stripe": "n=0 of units=9", "a": "n=0 of units=1"}, 1),
        ("work slots=2 gpu=1 for=a/b", {"@a": "n=1 slots=2 gpu=1 of -"}, inf),
        ("work slots=2 gpu=1 for=a/b", {"@a": "n=1 slots=2 gpu=1 of slots=9"}, 3),
        ("work slots=2 gpu=0.5 for=a/b", {"@a/b": "n=1 gpu=1 of slots=99 gpu=2"}, 2),
        ("work slots=2 for=a/b", {"@a/b": "n=1 gpu=1 of gpu=1"}, inf),
        ("work slots=2 for=a/b", {"@a/b": "damaged of -"}, inf),
        ("work slots=2 for=a/b", {"@a/b": "damaged of ?"}, 0),
    ],
)
def test_a_kind_has_the_room_of_its_fullest_account(
    kind: str, lines: dict[str, str], tasks: float
) -> None:
    accounts = AccountsCopy(1, WarmSets())
    for account, line in lines.items():
        accounts.set(0, account, line)
    assert accounts.room(asks_of(Kind.of(kind)), 0).tasks == tasks


@pytest.mark.parametrize(
    ("line", "units", "tasks", "due_ms"),
    [
        ("n=0 of rate=10/1000 burst=4", 1, 4, inf),
        ("n=0 of rate=10/1000 burst=4", 2, 2, inf),
        ("n=1 units=1 next=1300.000 of rate=10/1000 burst=4", 1, 1, inf),
        ("n=1 units=1 next=1400.000 of rate=10/1000 burst=4", 1, 0, 1100),
        ("n=1 units=1 next=1300.000 of rate=10/1000 burst=4", 2, 0, 1100),
        ("n=1 units=1 next=1100.000 of units=2 rate=10/1000 burst=4", 1, 1, inf),
        ("n=0 of rate=10/1000 burst=4", 5, 0, inf),
    ],
)
def test_a_rate_has_the_tokens_of_its_burst(
    line: str, units: int, tasks: float, due_ms: float
) -> None:
    accounts = AccountsCopy(1, WarmSets())
    accounts.set(0, "stripe", line)
    accounts.on_time(0, 1000)
    limit = "stripe" if units == 1 else f"stripe*{units}"
    room = accounts.room(asks_of(Kind("work", "slots=1", "", "", limit)), 0)
    assert (room.tasks, room.due_ms) == (tasks, due_ms)


def test_a_tenant_holds_what_its_lines_of_all_shards_say_and_what_is_reserved() -> None:
    accounts = AccountsCopy(2, WarmSets())
    asks = asks_of(Kind.of("work slots=2 for=a/b"))
    accounts.set(0, "@a/b", "n=1 slots=3 gpu=1 of -")
    accounts.set(1, "@a/b", "n=1 slots=4 of slots=9")
    accounts.reserve(1, asks, 2)
    assert accounts.held("@a/b") == {"slots": 11_000, "gpu": 1000}
    assert accounts.held_below("@a")["slots"] == 11_000
    assert accounts.room(asks, 1).tasks == 0
    accounts.settle(1)
    assert accounts.room(asks, 1).tasks == 2
    accounts.clear_shard(0)
    assert accounts.held("@a/b") == {"slots": 4000, "gpu": 0}
    accounts.clear_shard(1)
    assert not accounts.held("@a/b")


def test_no_more_seats_are_reserved_than_a_limit_has_room_for() -> None:
    core = sees()
    queue = told(Queue(core).add(STRIPE, 20).account("stripe", "n=1 units=1 of units=5"))
    plan = core.plan()
    assert takes(plan) == [(STRIPE, 4)]
    assert marks(plan) == [STRIPE], "the same call marks the limit, which is full by then"
    told(queue.account("stripe", "n=5 units=5 full of units=5"))
    assert not takes(core.plan())
    assert core.at_rest, "nothing is searched for a kind under a full limit"
    told(queue.account("stripe", "n=3 units=3 of units=5"))
    assert not core.at_rest
    assert takes(core.plan()) == [(STRIPE, 2)]


@pytest.mark.parametrize(
    ("kind", "line", "is_marked"),
    [
        (STRIPE, "n=5 units=5 of units=5", True),
        (STRIPE, "n=5 units=5 full of units=5", False),
        (STRIPE, "n=0 of units=0", True),
        (STRIPE, "n=0 of -", False),
        (STRIPE, "damaged of units=5", False),
        (STRIPE, "n=1 units=1 next=99000 of rate=1/60000 burst=1", False),
        (STRIPE, "n=1 units=1 next=99000 of units=1 rate=1/60000 burst=1", True),
        ("work slots=1 under=stripe*2", "n=0 of rate=1/60000 burst=1", False),
        ("work slots=1 for=acme", "n=2 slots=2 of slots=2", True),
    ],
)
def test_an_account_that_holders_fill_is_marked_once_and_no_rate_is(
    kind: str, line: str, is_marked: bool
) -> None:
    core = sees()
    account = "@acme" if "for=" in kind else "stripe"
    queue = told(Queue(core).add(kind, 5).account(account, line))
    plan = core.plan()
    assert not takes(plan)
    assert marks(plan) == [kind] * is_marked
    told(queue.account(account, line.replace(" of", " full of") if is_marked else line))
    assert not marks(core.plan())
    assert core.at_rest


def test_a_kind_that_comes_while_its_account_is_exactly_full_lets_a_take_mark_it() -> None:
    core = sees()
    queue = told(Queue(core).add(STRIPE, 5).account("stripe", "n=4 units=4 of units=5"))
    plan = core.plan()
    assert (takes(plan), marks(plan)) == ([(STRIPE, 1)], [STRIPE])
    told(queue.account("stripe", "n=5 units=5 full of units=5"))
    assert not core.plan().shard_looks
    # another scheduler has filled the account: a task has left it meanwhile
    told(queue.account("stripe", "n=5 units=5 of units=5"))
    assert marks(core.plan()) == [STRIPE]


def test_many_full_accounts_are_marked_plan_by_plan() -> None:
    core = sees()
    queue = Queue(core)
    limits = [f"l:{number}" for number in range(MARKS_AT_ONCE + 50)]
    kinds = {f"work slots=1 under={limit}" for limit in limits}
    for limit in limits:
        queue.add(f"work slots=1 under={limit}", 2).account(limit, "n=1 units=1 of units=1")
    told(queue)
    first = marks(core.plan())
    assert len(first) == MARKS_AT_ONCE
    assert not core.at_rest
    assert {*first, *marks(core.plan())} == kinds
    assert core.at_rest


def test_kinds_under_one_limit_share_its_room_and_the_oldest_goes_first() -> None:
    core = sees()
    young, old = "young slots=1 under=stripe", "old slots=2 under=stripe"
    queue = Queue(core).add(young, 5, first=50).add(old, 2, first=10)
    told(queue.account("stripe", "n=0 of units=4"))
    assert dict(takes(core.plan())) == {old: 2, young: 2}
    queue.add("late slots=1 under=stripe", 1, first=90)
    told(queue.account("stripe", "n=4 units=4 of units=4"))
    assert not takes(core.plan())
    told(queue.account("stripe", "n=3 units=3 of units=4"))
    assert takes(core.plan()) == [(old, 1)]


def test_a_full_limit_does_not_keep_other_kinds_of_its_group_from_seats() -> None:
    core = sees()
    queue = Queue(core).add(STRIPE, 5).add("work slots=1", 5, first=50)
    told(queue.account("stripe", "n=5 units=5 of units=5"))
    assert takes(core.plan()) == [("work slots=1", 5)]


def test_a_whole_copy_begins_with_no_account() -> None:
    core = sees()
    told(Queue(core).add(STRIPE, 5).account("stripe", "n=5 units=5 of units=5"))
    core.on_took(Took("2", 0, anew=True, changes=[(STRIPE, "5 1 5")]))
    assert takes(core.plan()) == [(STRIPE, 5)]


def test_a_limit_is_full_in_one_shard_only() -> None:
    core = sees(shards=2)
    told(Queue(core, 0).add(STRIPE, 5).account("stripe", "n=5 units=5 of units=5"))
    told(Queue(core, 1).add(STRIPE, 5).account("stripe", "n=0 of units=5"))
    plan = core.plan()
    assert not takes(plan, 0)
    assert takes(plan, 1) == [(STRIPE, 5)]


def test_the_next_token_of_a_rate_opens_its_kinds() -> None:
    core = sees()
    queue = Queue(core).add(STRIPE, 5)
    queue.now_ms = 1000
    told(queue.account("stripe", "n=1 units=1 next=1100.000 of rate=10/1000 burst=1"))
    assert not takes(core.plan())
    assert core.token_due_ms(0) == 1100
    core.on_time(0, 1099)
    assert not takes(core.plan())
    core.on_time(0, 1100)
    assert takes(core.plan()) == [(STRIPE, 1)]


@pytest.mark.parametrize(
    ("kind", "account", "line", "why"),
    [
        (STRIPE, "stripe", "n=5 units=5 of units=5", "limit stripe: 5 of 5 are held"),
        (
            STRIPE,
            "stripe",
            "n=0 of -",
            "no limit 'stripe' is in the policy or declared by a worker",
        ),
        (
            STRIPE,
            "stripe",
            "n=1 units=1 next=99000 of rate=100/60000 burst=10",
            "limit stripe: 100 in a minute are used up",
        ),
        (
            "work slots=1 for=acme",
            "@acme",
            "n=20 slots=200 of slots=200",
            "tenant acme holds 200 of at most 200 slots",
        ),
    ],
)
def test_a_kind_without_room_waits_for_its_account(
    kind: str, account: str, line: str, why: str
) -> None:
    core = sees()
    queue = told(Queue(core).add(kind, 5).account(account, line))
    assert not takes(core.plan())
    assert written(core) == {kind: why}
    assert not written(core), "a reason is written once"
    queue.add(kind, 1, first=9)
    told(queue)
    assert written(core) == {kind: why}


def test_a_kind_that_leaves_the_queue_leaves_its_full_account() -> None:
    core = sees()
    queue = told(Queue(core).add(STRIPE, 5).account("stripe", "n=5 units=5 of units=5"))
    core.plan()
    core.on_took(Took("2", 0, changes=[(STRIPE, "")]))
    told(queue.account("stripe", "n=0 of units=5"))
    assert not takes(core.plan())
    assert core.at_rest


def test_new_nodes_do_not_bring_a_kind_without_room_into_a_group() -> None:
    core = sees()
    told(Queue(core).add(STRIPE, 5).account("stripe", "n=5 units=5 of units=5"))
    core.plan()
    see(core, 0, [node("m", 50)], 50)
    assert not core.queue.groups
    assert not takes(core.plan())


def test_a_kind_whose_name_begins_like_an_account_is_a_kind():
    queue = QueueCopy(View(1, 1.0))
    queue.update(Took("1", 0, changes=[("=foo slots=1", "1 5 5")]))
    assert [*queue.kinds[0]] == ["=foo slots=1"]


def test_the_tree_is_gone_with_the_last_kind_of_a_tenant():
    queue = QueueCopy(View(1, 1.0))
    queue.update(Took("1", 0, changes=[("a slots=1 for=t", "1 5 5"), ("a slots=1", "1 6 6")]))
    assert queue.tree is not None
    queue.update(Took("2", 0, changes=[("a slots=1 for=t", "")]))
    assert queue.tree is None
    assert [*queue.kinds[0]] == ["a slots=1"]


def test_a_kind_comes_back_when_the_policy_has_an_entry_for_many_accounts():
    """An account without holders has no line, so only the pattern is told."""
    queue = QueueCopy(View(1, 1.0))
    kind = "a slots=1 under=customer:7"
    own = "a slots=1 under=stripe"
    queue.update(
        Took(
            "1",
            0,
            changes=[
                ("=customer:7", "n=0 of -"),
                ("=stripe", "n=0 of -"),
                (kind, "1 5 5"),
                (own, "1 6 6"),
            ],
        )
    )
    assert not queue.groups
    queue.update(Took("2", 0, changes=[("=customer:*", "n=0 of units=5")]))
    assert [waiting.kind.text for waiting in queue.full.leave()] == [kind]


def test_many_kinds_of_a_roomier_account_are_looked_at_call_by_call() -> None:
    queue = QueueCopy(View(1, 1.0))
    count = 5 * KINDS_AT_ONCE
    kinds = [(f"w{number} slots=1 under=a,b", f"1 {number} {number}") for number in range(count)]
    full_a = ("=a", "n=1 units=1 full of units=1")
    queue.update(Took("1", 0, changes=[full_a, ("=b", "n=0 of units=1"), *kinds]))
    full_b = ("=b", "n=1 units=1 full of units=1")
    queue.update(Took("2", 0, changes=[("=a", "n=0 of units=999"), full_b]))
    moved = []
    while queue.full.any_roomier:
        assert queue.full.leave() == []
        moved.append(sum(waiting.full == "b" for waiting in queue.kinds[0].values()))
    assert moved == [*range(KINDS_AT_ONCE, count + 1, KINDS_AT_ONCE)]


def test_many_roomier_accounts_have_turns_call_by_call() -> None:
    queue = QueueCopy(View(1, 1.0))
    limits = [f"l:{number}" for number in range(2 * LOOKS_AT_ONCE)]
    kinds = [
        (f"w slots=1 under={limit}", f"5 {order} {order}") for order, limit in enumerate(limits)
    ]
    queue.update(Took("1", 0, changes=[(f"={limit}", "n=0 full of units=0") for limit in limits]))
    queue.update(Took("2", 0, changes=kinds))
    queue.update(Took("3", 0, changes=[(f"={limit}", "n=0 of units=9") for limit in limits]))
    assert len(queue.full.leave()) == LOOKS_AT_ONCE // 2, "each account is looked at twice"
    count = LOOKS_AT_ONCE // 2
    while queue.full.any_roomier:
        count += len(queue.full.leave())
    assert count == len(limits)


class CountingTime(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __ge__(self, other: float) -> bool:
        type(self).compared += 1
        return float(self) >= other


def test_only_tokens_that_are_due_are_looked_at() -> None:
    queue = QueueCopy(View(1, 1.0), 2)
    rate = "rate=1/1000 burst=1"
    for shard in range(2):
        changes = []
        for number in range(1000):
            kind = f"w slots=1 under=l:{number}"
            changes.append((f"=l:{number}", f"n=1 units=1 next={2000 + number} of {rate}"))
            changes.append((kind, f"1 {number} {number}"))
        queue.update(Took("1", 1000, changes=changes, shard=shard))
    assert [queue.full.due_ms(shard) for shard in range(2)] == [2000, 2000]
    queue.accounts.on_time(0, 2002)
    queue.full.on_time(0, CountingTime(2002))
    assert CountingTime.compared < 10, "there are 2,000 tokens"
    assert [queue.full.due_ms(shard) for shard in range(2)] == [2003, 2000]
    leaving = {waiting.kind.limits for waiting in queue.full.leave()}
    assert leaving == {"l:0", "l:1", "l:2"}


def test_a_kind_that_leaves_within_a_plan_keeps_no_other_kind_of_its_group_from_seats() -> None:
    core = sees()
    queue = Queue(core).account("r", "n=1 units=1 full of units=1")
    queue.account("b", "n=0 of units=1").account("s", "n=0 of units=1")
    movers = [f"m{number} slots=1 under=b,r" for number in range(KINDS_AT_ONCE)]
    for number, kind in enumerate([*movers, "last slots=1 under=r"]):
        queue.add(kind, 1, first=1 + number)
    told(queue)
    core.plan()
    queue.add("plain slots=1", 1, first=500)
    queue.add("x slots=1 under=s", 1, first=501).add("y slots=1 under=s", 1, first=502)
    queue.account("b", "n=1 units=1 full of units=1").account("s", "n=0 of units=1")
    told(queue.account("r", "n=0 of units=999"))
    # the movers leave r for b first, so the last kind comes back while the plan is made
    assert ("last slots=1 under=r", 1) in takes(core.plan())
