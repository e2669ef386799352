"""The policy: its document is read, written and compared; what counts for a tenant or a limit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.errors import InvalidInput
from parsync_redis.model.policy import LimitEntry, Policy, StartRate, TenantEntry, find_doubts
from parsync_redis.model.policy_document import find_changes, policy_text, with_value
from parsync_redis.model.policy_reader import MAX_DOCUMENT_BYTES, policy_of, read_policy

DOCUMENT = """
[tenants]
children = "strict"
[tenants."research"]
weight = 3
at_least = {gpu = 4, slots = 20}
at_most = {slots = 200, mem = "64GiB"}
order = "shortest"
half_life = "30m"
[tenants."research/*"]
at_most = {slots = 10}
[tenants."research/anna"]
children = "fair"
[tenants."*"]
weight = 0.5
at_most = {slots = 50}
[limits."stripe"]
at_once = 5
rate = "100/m"
[limits."mail"]
rate = "5/s"
[limits."customer:*"]
at_once = 1
[limits."customer:7"]
at_once = 0
"""


def test_an_entry_counts_for_a_name_and_a_pattern_for_names_without_an_entry():
    policy = read_policy(DOCUMENT)
    research = policy.tenant("research")
    assert research.weight == 3
    assert research.at_least == (("slots", 20_000), ("gpu", 4000))
    assert (research.order, research.half_life_s, research.rank) == ("shortest", 1800.0, 0)
    assert policy.tenant("").children == "strict"
    assert policy.tenant("acme").weight == 0.5
    assert policy.tenant("acme").rank == 3
    assert policy.tenant("research/bob").at_most == (("slots", 10_000),)
    assert policy.tenant("research/anna").at_most == ()
    assert policy.tenant("research/anna/x") == TenantEntry(rank=4)
    assert policy.limit("stripe") == LimitEntry(5, StartRate(100, 60_000), 10)
    assert policy.limit("mail") == LimitEntry(None, StartRate(5, 1000), 1)
    assert policy.limit("customer:8") == LimitEntry(1)
    assert policy.limit("customer:7") == LimitEntry(0)
    assert policy.limit("customer") is None


def test_tasks_without_a_tenant_have_a_weight_and_no_amounts():
    tenant = read_policy(DOCUMENT).tenant("-")
    assert tenant.weight == 0.5
    assert (tenant.at_least, tenant.at_most) == ((), ())


def test_the_rows_are_the_ceilings_by_account_and_pattern():
    policy = read_policy(DOCUMENT)
    assert policy.rows == [
        ("@*", "slots=50"),
        ("@research", "slots=200 mem=68719476736"),
        ("@research/*", "slots=10"),
        ("@research/anna", "slots=9007199254740991"),
        ("customer:*", "units=1"),
        ("customer:7", "units=0"),
        ("mail", "rate=5/1000 burst=1"),
        ("stripe", "units=5 rate=100/60000 burst=10"),
    ]
    assert policy.ceiling("@research/bob") == "slots=10"
    assert policy.ceiling("@research/anna") == ""
    assert policy.ceiling("customer:9") == "units=1"
    assert policy.ceiling("strpe") is None


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            "[tenants.research]\nwieght = 3",
            "unknown key tenants.research.wieght; did you mean weight?",
        ),
        (
            "[limits.stripe]\nat_once = -1",
            "limits.stripe.at_once must be a whole number from 0 to 1,000,000, not -1",
        ),
        ("[limits.stripe]\nat_once = true", "limits.stripe.at_once must be a whole number"),
        ("[limits.stripe]\nat_once = 1.5", "limits.stripe.at_once must be a whole number"),
        ("[limits.stripe]\nrate = '100/w'", 'limits.stripe.rate must be a text such as "100/m"'),
        ("[limits.stripe]\nrate = '0/m'", "limits.stripe.rate must be a text such as"),
        ("[limits.stripe]\nrate = 100", "limits.stripe.rate must be a text such as"),
        ("[limits.stripe]\nburst = 3\nat_once = 1", "limits.stripe.burst counts only with a rate"),
        ("[limits.stripe]\nrate='1/s'\nburst = 0", "limits.stripe.burst must be a whole number"),
        ("[limits.stripe]", "limits.stripe must have at_once = 5"),
        ("[limits]\nstripe = 5", "limits.stripe must be a table, [limits.stripe], not 5"),
        ("[limits.'*']\nat_once = 5", "a pattern is a name and its first colon"),
        ("[limits.'a:b:*']\nat_once = 5", "a pattern is a name and its first colon"),
        ("[limits.'a b']\nat_once = 5", "limit 'a b' is not valid"),
        ("[limits.a.b]\nat_once = 5", 'unknown key limits.a.b; did you mean [limits."a.b"]?'),
        (
            "[tenants.a.b]\nweight = 5",
            'unknown key tenants.a.b; did you mean [tenants."a/b"]?',
        ),
        ("[tenants.Acme]\nweight = 1", "tenant='Acme' is not valid"),
        ("[tenants.'a/b/c/*']\nweight = 1", "has three words at most"),
        ("[tenants.'*/a']\nweight = 1", "tenant='*/a' is not valid"),
        ("[tenants.a]\nweight = 0", "tenants.a.weight must be a number from 0.001 to 1,000,000"),
        ("[tenants.a]\nweight = nan", "tenants.a.weight must be a number"),
        ("[tenants.a]\norder = 'strict'", "tenants.a.children takes it"),
        ("[tenants.a]\nchildren = 'fare'", 'tenants.a.children must be "fair" or "strict"'),
        ("[tenants.a]\nhalf_life = 3", 'tenants.a.half_life must be a text such as "0s"'),
        ("[tenants.a]\nhalf_life = '366d'", "tenants.a.half_life must be a text"),
        ("[tenants.a]\nat_most = 3", "tenants.a.at_most must be a table such as"),
        ("[tenants.a]\nat_most = {slots = 0.5}", "tenants.a.at_most.slots must be a whole number"),
        ("[tenants.a]\nat_most = {for = 1}", "must be slots or the name of a resource"),
        ("[tenants.a]\nat_most = {mem = '4 bushels'}", "tenants.a.at_most: resource mem='4 bush"),
        (
            "[tenants.a]\nat_least = {gpu = 8}\nat_most = {gpu = 4}",
            "tenants.a.at_least gpu=8 is more than its at_most gpu=4",
        ),
        ("[tenants.'-']\nat_most = {slots = 1}", "no account counts tasks without one"),
        ("[tenants]\nchildern = 'fair'", "unknown key tenants.childern; did you mean children?"),
        ("[limit.stripe]\nat_once = 3", "unknown key limit; did you mean limits?"),
        ("limits = 3", "limits must be a table, [limits], not 3"),
        ("[limits.a\n", "the policy is not TOML"),
        ("#" * (MAX_DOCUMENT_BYTES + 1), "a policy has at most 256 KiB"),
        ("\n".join(f"[limits.l{n}]\nat_once=1" for n in range(1001)), "1,001 entries are too many"),
    ],
)
def test_a_mistake_is_refused_with_what_would_be_right(document: str, sentence: str):
    with pytest.raises(InvalidInput) as refusal:
        read_policy(document)
    assert sentence in str(refusal.value)


def test_an_error_names_each_mistake():
    with pytest.raises(InvalidInput) as refusal:
        read_policy("[limits.a]\nat_once = -1\n[limits.b]\nat_onec = 2\nrate = '1/s'")
    sentence = str(refusal.value)
    assert "limits.a.at_once must be" in sentence
    assert "unknown key limits.b.at_onec; did you mean at_once?" in sentence


def test_the_written_document_says_the_same_policy():
    policy = read_policy(DOCUMENT)
    assert read_policy(policy_text(policy)) == policy
    assert list(read_policy(policy_text(policy)).tenants) == list(policy.tenants)


AMOUNTS = st.dictionaries(
    st.sampled_from(["slots", "gpu", "mem"]), st.integers(0, 10**12), max_size=3
)
TENANT = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.floats(0.001, 1e6) | st.integers(1, 10**6),
        "at_most": AMOUNTS,
        "children": st.sampled_from(["fair", "strict"]),
        "order": st.sampled_from(["age", "shortest", "mine"]),
        "half_life": st.sampled_from(["0s", "1.5s", "90s", "60m", "24h", "7d"]),
    },
)
LIMIT = st.fixed_dictionaries(
    {"at_once": st.integers(0, 10**6)},
    optional={"rate": st.sampled_from(["1/s", "100/m", "1000000/d", "60/h"])},
)


@given(
    st.dictionaries(st.sampled_from(["*", "-", "a", "a/b", "a/*", "a.b"]), TENANT),
    st.dictionaries(st.sampled_from(["stripe", "c:*", "c:7", "a.b/c"]), LIMIT),
)
def test_each_policy_is_written_as_it_was_read(
    tenants: dict[str, dict[str, Any]], limits: dict[str, dict[str, Any]]
):
    if "-" in tenants:
        tenants["-"].pop("at_most", None)
        tenants["-"].pop("order", None)
    policy = policy_of({"tenants": tenants, "limits": limits})
    again = read_policy(policy_text(policy))
    assert again == policy
    assert find_changes(policy, again) == []


@pytest.mark.parametrize(
    ("assignment", "change"),
    [
        ("limits.stripe.at_once=3", "limits.stripe.at_once: 5 -> 3"),
        ("limits.stripe.rate=10/s", 'limits.stripe.rate: "100/m" -> "10/s"'),
        ("limits.stripe.burst=20", "limits.stripe.burst is new: 20"),
        ('limits.stripe.rate="10/s"', 'limits.stripe.rate: "100/m" -> "10/s"'),
        ("limits.stripe.rate=", 'limits.stripe.rate is removed: it was "100/m"'),
        ("limits.mail=", "limits.mail is removed"),
        ("limits.customer:8.at_once=2", "limits.customer:8 is new: at_once = 2"),
        ("tenants.children=fair", 'tenants.children is removed: it was "strict"'),
        ("tenants.research.at_least={gpu=2}", "tenants.research.at_least: "),
        ('limits."a.b".at_once=2', "limits.a.b is new: at_once = 2"),
        ("limits.a.b.at_once=2", "limits.a.b is new: at_once = 2"),
        ("tenants.research/eve.weight=2", "tenants.research/eve is new: weight = 2"),
        ("tenants.sales.at_most.slots=2", "tenants.sales is new: at_most = {slots = 2}"),
        ("tenants.research.at_least.gpu=5", "tenants.research.at_least: "),
        ("tenants.research.at_least.gpu=", "tenants.research.at_least: "),
    ],
)
def test_one_value_is_set_and_the_change_is_told(assignment: str, change: str):
    before = read_policy(DOCUMENT)
    changes = find_changes(before, with_value(before, assignment))
    assert len(changes) == 1
    assert changes[0].startswith(change)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("stripe=3", "it must be such as limits.stripe.at_once=3"),
        ("limits.stripe.at_once", "it must be such as"),
        ("limits.stripe.at_onec=3", "unknown key limits.stripe.at_onec; did you mean at_once?"),
        ("limits.stripe.at_once=three", "must be a whole number from 0 to 1,000,000, not 'three'"),
        ("limits.visa.rate=", "limits.visa.rate is not in the policy"),
        ("limits.visa=", "limits.visa is not in the policy"),
        ("limits.mail.rate=", "limits.mail must have at_once"),
        ("tenants.weight=3", "unknown key tenants.weight"),
        ("tenants.research.at_most.gpu=", "tenants.research.at_most.gpu is not in the policy"),
        ("limits.stripe.at_most.slots=2", "unknown key limits.stripe.at_most"),
    ],
)
def test_a_value_that_cannot_be_set_is_refused(assignment: str, sentence: str):
    with pytest.raises(InvalidInput) as refusal:
        with_value(read_policy(DOCUMENT), assignment)
    assert sentence in str(refusal.value)


def test_another_order_of_the_tenants_is_a_change():
    first = policy_of({"tenants": {"a": {}, "b": {}}})
    second = policy_of({"tenants": {"b": {}, "a": {}}})
    assert find_changes(first, second) == ["the order of the tenants is now b, a"]


def test_a_guarantee_that_the_nodes_cannot_give_is_a_doubt():
    policy = policy_of(
        {
            "tenants": {
                "a": {"at_least": {"gpu": 30}},
                "b": {"at_least": {"gpu": 10}, "order": "mine"},
                "b/c": {"at_least": {"gpu": 10}},
            }
        }
    )
    doubts = find_doubts(policy, [("gpu", 32_000)])
    assert "at_least of tenants adds up to gpu=40; the nodes have 32" in doubts
    assert any("tenants.b.order is mine" in doubt for doubt in doubts)
    assert find_doubts(Policy(), [("gpu", 0)]) == []
    aged = read_policy('[tenants.a]\nhalf_life = "30m"')
    assert (find_doubts(aged), aged.longest_half_life_s) == ([], 1800)


def test_tasks_without_a_tenant_have_no_order_of_their_own():
    with pytest.raises(InvalidInput, match=r"order cannot be: tasks without a tenant go by age"):
        read_policy('[tenants."-"]\norder = "shortest"')
    assert read_policy('[tenants."-"]\nweight = 2').tenant("-").weight == 2
