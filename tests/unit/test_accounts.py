"""Tenants and limits of tasks, and the accounts to which tasks count."""

import re
from typing import Any

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.model.account import check_limit, check_tenant, limits_text, pattern_of
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources


def test_a_kind_counts_to_its_tenants_and_its_limits():
    kind = Kind.of("proj.render slots=2 gpu=1 latency for=research/anna under=customer:7,stripe*2")
    assert kind.needs == "slots=2 gpu=1"
    assert kind.accounts == (
        ("@research", 1),
        ("@research/anna", 1),
        ("customer:7", 1),
        ("stripe", 2),
    )
    assert Kind.of("work slots=1").accounts == ()


@pytest.mark.parametrize(
    "text",
    [
        "work slots=1 for=",
        "work slots=1 for=A",
        "work slots=1 for=a/b/c/d",
        "work slots=1 under=a*0",
        "work slots=1 under=a*1001",
        "work slots=1 under=a,,b",
        "work slots=1 under=a for=b",
        "work slots=1 under=" + ",".join("abcdefghi"),
    ],
)
def test_damaged_accounts_are_no_kind(text: str):
    with pytest.raises(ValueError, match="not a kind"):
        Kind.of(text)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (["stripe", "customer:7"], "customer:7,stripe"),
        ({"licence": 2, "a": 1}, "a,licence*2"),
        ([], ""),
    ],
)
def test_limits_are_sorted(limits: Any, text: str):
    assert limits_text(limits) == text


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (["a", "a"], "limit 'a' is given twice"),
        (["a b"], "limit 'a b' is not valid: it must be 1 to 128"),
        ({"a": 0}, "units are a whole number from 1 to 1,000"),
        ({"a": True}, "units are a whole number from 1 to 1,000"),
        ([str(number) for number in range(9)], "9 limits are too many"),
    ],
)
def test_limits_that_are_not_valid_are_refused(limits: Any, rule: str):
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        limits_text(limits)


@pytest.mark.parametrize("tenant", ["", "A", "-", "a//b", "a/b/c/d", "a" * 33, "a b", 7])
def test_tenants_that_are_not_valid_are_refused(tenant: object):
    with pytest.raises(InvalidInput, match="must be up to three words"):
        check_tenant(tenant)
    assert check_tenant("a/b-1/c.d") == "a/b-1/c.d"


@pytest.mark.parametrize(
    ("account", "pattern"),
    [
        ("customer:7", "customer:*"),
        ("a:b:c", "a:*"),
        ("stripe", ""),
        ("@acme", "@*"),
        ("@research/anna", "@research/*"),
    ],
)
def test_an_entry_of_the_policy_may_count_for_many_accounts(account: str, pattern: str):
    assert pattern_of(account) == pattern


@pytest.mark.parametrize("name", ["for", "under"])
def test_no_resource_has_the_name_of_a_word_of_a_kind(name: str):
    with pytest.raises(InvalidInput, match="is reserved: tenant="):
        Resources.needed(1, {name: 1})


def test_a_limit_has_a_name():
    assert check_limit("customer:7@x") == "customer:7@x"
