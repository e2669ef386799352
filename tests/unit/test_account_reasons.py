"""Why a tenant or a limit keeps tasks waiting, and the lines of accounts that say so."""

import pytest

from parsync_redis.model.account_line import AccountLine, Ceiling
from parsync_redis.model.kind import Kind
from parsync_redis.model.policy import StartRate
from parsync_redis.placement.account_reasons import find_block
from parsync_redis.placement.reasons import reason_class

CHARGE = "shop.charge slots=2 gpu=1 for=acme/web under=licence*3,stripe"


def block_of(lines, ceilings, kind=CHARGE, now_ms=1000.0):
    accounts = {account: AccountLine.of(line) for account, line in lines.items()}
    enough = {"@acme": "", "@acme/web": "-", "stripe": "units=5", "licence": "units=9"}
    return find_block(Kind.of(kind), accounts, {**enough, **ceilings}, now_ms, ["stripe"])


def test_a_line_is_read_with_and_without_its_ceiling_and_marks():
    line = AccountLine.of("n=5 units=7 next=1732161994123.250 of units=7 rate=100/60000 burst=10")
    assert line == AccountLine(5, {"units": 7000}, 1732161994123.25)
    assert AccountLine.of("n=3 slots=12 gpu=0.5 full").amounts == {"slots": 12_000, "gpu": 500}
    assert AccountLine.of("") == AccountLine.of("n=0 of -") == AccountLine()
    assert AccountLine.of("damaged of units=5").is_damaged
    assert AccountLine.of("n=x units=7").is_damaged


def test_lines_of_shards_add_up():
    line = AccountLine.of("n=1 slots=2 gpu=1").with_shard(AccountLine.of("n=2 slots=3 next=7"))
    assert line == AccountLine(3, {"slots": 5000, "gpu": 1000}, 7.0)
    assert line.with_shard(AccountLine.of("rubbish")).is_damaged


def test_a_ceiling_is_read():
    assert Ceiling.of("slots=200 mem=0.5") == Ceiling({"slots": 200_000, "mem": 500})
    rated = Ceiling({"units": 5000}, StartRate(100, 60_000), 10)
    assert Ceiling.of("units=5 rate=100/60000 burst=10") == rated
    assert Ceiling.of("rate=1/1000 burst=1") == Ceiling({}, StartRate(1, 1000), 1)
    assert Ceiling.of("-") == Ceiling.of("") == Ceiling()


@pytest.mark.parametrize(
    ("lines", "ceilings", "cause", "why"),
    [
        ({"stripe": "n=4 units=4"}, {}, None, None),
        ({"stripe": "n=5 units=5"}, {}, "full", "limit stripe: 5 of 5 are held"),
        ({"licence": "n=3 units=7"}, {}, "full", "limit licence: 7 of 9 are held"),
        ({}, {"stripe": "units=0"}, "paused", "limit stripe is 0: it is paused"),
        (
            {},
            {"licence": "units=2"},
            "too_large",
            "limit licence may hold at most 2 units; one such task asks for 3 units",
        ),
        (
            {},
            {"licence": "rate=9/1000 burst=2"},
            "too_large",
            "limit licence has a burst of 2; one such task asks for 3 units",
        ),
        (
            {"stripe": "n=0 next=61600"},
            {"stripe": "rate=100/60000 burst=100"},
            "rate",
            "limit stripe: 100 in a minute are used up",
        ),
        ({"stripe": "n=0 next=60000"}, {"stripe": "rate=100/60000 burst=100"}, None, None),
        (
            {"@acme": "n=9 slots=199"},
            {"@acme": "slots=200"},
            "full",
            "tenant acme holds 199 of at most 200 slots",
        ),
        (
            {"@acme/web": "n=9 slots=9 gpu=4"},
            {"@acme/web": "gpu=4"},
            "full",
            "tenant acme/web holds gpu=4 of at most gpu=4",
        ),
        (
            {},
            {"@acme": "slots=1"},
            "too_large",
            "tenant acme may hold at most 1 slots; one such task asks for 2 slots",
        ),
        ({"stripe": "?"}, {}, "damaged", "what limit stripe holds is not known"),
        ({"@acme": "?"}, {"@acme": "slots=5"}, "damaged", "what tenant acme holds is not known"),
        (
            {},
            {"stripe": None},
            "unknown",
            "no limit 'stripe' is in the policy or declared by a worker",
        ),
    ],
)
def test_the_account_that_keeps_a_kind_is_named(lines, ceilings, cause, why):
    block = block_of(lines, ceilings)
    assert (block and block.cause) == cause
    if why:
        assert block.why.startswith(why)
        expected_class = "tenant" if "tenant" in why else "limit"
        assert reason_class(block.why) == expected_class


def test_a_reason_that_an_operator_must_end_is_told_before_one_that_passes():
    block = block_of({"@acme": "n=9 slots=200"}, {"@acme": "slots=200", "stripe": "units=0"})
    assert (block.cause, block.is_lasting) == ("paused", True)
    assert not block_of({"@acme": "n=9 slots=200"}, {"@acme": "slots=200"}).is_lasting


def test_a_misspelled_limit_gets_a_suggestion():
    block = block_of({}, {}, "work slots=1 under=strpe")
    assert (
        block.why
        == "no limit 'strpe' is in the policy or declared by a worker; did you mean stripe?"
    )


def test_a_rate_says_when_the_next_task_starts():
    block = block_of({"stripe": "n=0 next=61600"}, {"stripe": "rate=100/60000 burst=100"})
    assert block.free_ms == 2200
    assert (
        Ceiling.of("rate=100/60000 burst=100").used(AccountLine.of("n=0 next=61600"), 1600) == 100
    )


def test_a_damaged_line_of_a_tenant_without_a_ceiling_keeps_no_task():
    kind = Kind.of("work slots=1 for=acme")
    assert find_block(kind, {"@acme": AccountLine.of("?")}, {"@acme": None}, 0.0) is None
