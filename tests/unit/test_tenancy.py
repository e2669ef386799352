"""Tenants and limits as people see them: shares, metrics, the page, and a policy's outlook."""

import re
from dataclasses import replace

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from parsync_redis.inspect.policy_outlook import find_blocked
from parsync_redis.inspect.tenancy import Tenancy
from parsync_redis.model.account_line import AccountLine
from parsync_redis.model.account_views import (
    HolderView,
    LimitView,
    limit_views,
    offered_amounts,
    tenant_views,
)
from parsync_redis.model.policy import DueShares, Policy
from parsync_redis.model.policy_reader import policy_of, read_policy
from parsync_redis.serve.metrics import TOP_ACCOUNTS, render_metrics
from parsync_redis.serve.page_values import EMPTY_SURVEY, tenant_values
from parsync_redis.serve.pages import FOLDER
from parsync_redis.serve.surveyor import LatestSurvey

POLICY = read_policy(
    """
[tenants.research]
weight = 3
at_most = {slots = 8}
[tenants."research/anna"]
weight = 1
[limits.stripe]
at_once = 5
rate = "100/m"
[limits.paused]
at_once = 0
[limits."customer:*"]
at_once = 1
"""
)
LINES = {
    "@research": AccountLine.of("n=2 slots=4 gpu=3"),
    "@research/anna": AccountLine.of("n=1 slots=2 gpu=2"),
    "@acme": AccountLine.of("n=1 slots=2"),
    "stripe": AccountLine.of("n=2 units=3 next=4000"),
    "customer:7": AccountLine.of("n=1 units=1"),
}
WAITING = {"@acme": 5, "@-": 2, "stripe": 4, "strpe": 1}
OFFERED = offered_amounts([(6, {"gpu": 2.0}), (4, {"gpu": 2.0})])


def tenants_by_name():
    views = tenant_views(POLICY, LINES, WAITING, {"@acme": 1000}, OFFERED)
    return {view.name: view for view in views}


def test_a_share_is_the_largest_part_of_any_amount():
    tenants = tenants_by_name()
    assert [*tenants] == ["-", "acme", "research", "research/anna"]
    assert tenants["research"].share == 0.75
    assert tenants["acme"].share == 0.2
    assert tenants["research"].at_most == {"slots": 8}
    assert tenants["acme"].oldest_ms == 1000


def test_a_share_by_work_done_is_one_at_most():
    views = tenant_views(POLICY, LINES, {}, {}, OFFERED, work={"research": 1.5, "acme": 1.5})
    shares = {view.name: view.share for view in views}
    assert shares["research"] == 1.0
    assert shares["acme"] == pytest.approx(0.3)


def test_tasks_without_a_tenant_wait_and_what_they_hold_is_not_counted():
    tenant = tenants_by_name()["-"]
    assert (tenant.waiting, tenant.share, tenant.holders) == (2, None, None)


def test_a_part_by_weight_is_among_those_that_hold_or_wait():
    tenants = tenants_by_name()
    assert tenants["research"].due == 3 / 5
    assert tenants["acme"].due == 1 / 5
    assert tenants["research/anna"].due == 3 / 5
    assert DueShares(POLICY, ["acme"]).of("research") == 3 / 4
    strict = policy_of({"tenants": {"children": "strict", "a": {}, "b": {}}})
    strict_shares = DueShares(strict, ["a", "b"])
    assert (strict_shares.of("a"), strict_shares.of("b")) == (1.0, 0.0)


def test_a_cluster_without_tenants_lists_none():
    assert tenant_views(Policy(), {}, {"@-": 9}, {}, OFFERED) == []


def test_limits_of_the_policy_and_limits_that_tasks_use_are_listed():
    views = limit_views(POLICY, LINES, WAITING, {"stripe": HolderView("a", 1, "n1")}, 1000)
    limits = {view.name: view for view in views}
    assert [*limits] == ["customer:7", "paused", "stripe", "strpe"]
    stripe = limits["stripe"]
    assert (stripe.units, stripe.allowed, stripe.holders, stripe.waiting) == (3, 5, 2, 4)
    assert (stripe.rate, stripe.burst, stripe.used) == ("100/m", 10, 5)
    assert limits["customer:7"].allowed == 1
    assert not limits["strpe"].in_policy


def tenancy():
    tenants = tenant_views(POLICY, LINES, WAITING, {"@acme": 1000}, OFFERED)
    return Tenancy(tenants, limit_views(POLICY, LINES, WAITING, {}, 1000))


def metrics_of(values: Tenancy) -> dict[str, float]:
    survey = LatestSurvey(replace(EMPTY_SURVEY, tenancy=values), 0.0, 0.1, "")
    lines = render_metrics(survey).decode().splitlines()
    samples = [line.rpartition(" ") for line in lines if line and line[0] != "#"]
    return {name: float(value) for name, _, value in samples}


def test_the_metrics_say_what_is_held_allowed_and_waits():
    samples = metrics_of(tenancy())
    assert samples['parsync_tenant_held{amount="gpu",tenant="research"}'] == 3
    assert samples['parsync_tenant_waiting{tenant="acme"}'] == 5
    assert samples['parsync_limit_held{limit="stripe"}'] == 3
    assert samples['parsync_limit_allowed{limit="paused"}'] == 0
    assert samples['parsync_limit_waiting{limit="strpe"}'] == 1


def test_the_limits_beyond_the_most_used_count_as_other():
    limits = [LimitView(f"l{n}", 2, 1, 1, n) for n in range(TOP_ACCOUNTS + 3)]
    samples = metrics_of(Tenancy((), limits))
    assert samples['parsync_limit_held{limit="other"}'] == 3
    assert samples['parsync_limit_allowed{limit="other"}'] == 6
    assert samples['parsync_limit_waiting{limit="other"}'] == 0 + 1 + 2
    assert len([name for name in samples if name.startswith("parsync_limit_held")]) == 51


def test_a_tenant_below_another_one_counts_once_as_other():
    lines = {f"@t{n:02}": AccountLine.of("n=9 slots=9") for n in range(TOP_ACCOUNTS)}
    lines |= {name: AccountLine.of("n=1 slots=1") for name in ("@z", "@z/a", "@z/b")}
    samples = metrics_of(Tenancy(tenant_views(Policy(), lines, {}, {}, OFFERED), ()))
    assert samples['parsync_tenant_held{amount="slots",tenant="other"}'] == 1


def test_the_page_has_a_row_for_each_tenant_and_limit():
    survey = replace(EMPTY_SURVEY, now_ms=61_000, tenancy=tenancy())
    pages = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    about = {"cluster": "c", "links": (), "path": "", "title": "", "stale": False}
    html = pages.get_template("tenants.html").render(**about, **tenant_values(survey))
    rows = [re.sub(r"<[^>]+>", "|", row) for row in html.splitlines() if row.startswith("<tr>")]
    cells = [[cell for cell in row.split("|") if cell] for row in rows]
    assert ["acme", "1", "20%", "20%", "slots=2", "5", "1.0 min"] in cells
    assert ["stripe", "3", "5", "4", "100/m, 5 of 10 used"] in cells
    assert ["strpe", "0", "0", "1", "not in the policy, nor declared: no task starts"] in cells


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("[limits.stripe]\nat_once = 0", [("limit stripe is 0: it is paused", True, True)]),
        (
            "[limits.mail]\nat_once = 1",
            [("no limit 'stripe' is in the policy or declared by a worker", True, True)],
        ),
        (
            "[limits.stripe]\nat_once = 1",
            [("limit stripe may hold at most 1 units; one such task asks for 2 units", True, True)],
        ),
        (
            "[limits.stripe]\nat_once = 3\n[tenants.acme]\nat_most = {slots = 2}",
            [("tenant acme holds 2 of at most 2 slots", False, True)],
        ),
        ("[limits.stripe]\nat_once = 5", []),
    ],
)
def test_a_policy_says_which_waiting_tasks_it_keeps_waiting(document, expected):
    counts = {"shop.charge slots=1 for=acme under=stripe*2": 7, "work slots=1": 3}
    lines = {"@acme": LINES["@acme"], "stripe": AccountLine.of("n=1 units=1")}
    blocked = find_blocked(POLICY, read_policy(document), counts, lines, 1000)
    assert [(kind.why, kind.for_ever, kind.is_new) for kind in blocked] == expected
    assert all(kind.waiting == 7 for kind in blocked)


def test_tasks_that_wait_already_are_no_news():
    counts = {"shop.charge slots=1 under=stripe": 7}
    lines = {"stripe": AccountLine.of("n=5 units=5")}
    document = "[limits.stripe]\nat_once = 4"
    (kind,) = find_blocked(POLICY, read_policy(document), counts, lines, 1000)
    assert (kind.for_ever, kind.is_new) == (False, False)
