"""Used shares: past use fades by half in a half-life, and decides among tenants that hold alike."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.account_line import AccountLine
from parsync_redis.model.account_views import goes_first_by_use, tenant_views
from parsync_redis.model.policy_reader import read_policy
from parsync_redis.model.times import MIN_CLASS_RUNS, LearntTimes, RunTimes
from parsync_redis.model.used_share import (
    KEPT_HALF_LIVES,
    LEAST_USED,
    MAX_HELD_MS,
    HeldSlots,
    SharesByTenant,
    UsedShare,
    dominant_share,
    rows_to_note,
    shares_held,
    shares_of_work,
    work_of,
)
from tests.unit.test_tenants import sees, shares, tell, wait

HALF_LIFE_S = 1800.0
HALF_LIFE_MS = 1_800_000
DOCUMENT = '[tenants."*"]\nhalf_life = "30m"\n[tenants.now]\nweight = 1\n'
POLICY = read_policy(DOCUMENT)


def test_a_used_share_is_half_after_a_half_life() -> None:
    noted = UsedShare(0.4, 0.0, 1000)
    assert noted.at(1000 + HALF_LIFE_MS, HALF_LIFE_S) == pytest.approx(0.2)
    assert noted.at(1000 + 2 * HALF_LIFE_MS, HALF_LIFE_S) == pytest.approx(0.1)
    assert noted.at(1000, HALF_LIFE_S) == 0.4
    assert noted.at(0, HALF_LIFE_S) == 0.4, "a clock that was set back changes nothing"
    assert noted.at(2000, 0.0) == 0.0, "without a half-life past use does not count"


def test_a_tenant_that_holds_a_share_for_long_has_used_that_share() -> None:
    noted = UsedShare(0.0, 0.4, 0)
    for at_ms in range(0, 20 * HALF_LIFE_MS, MAX_HELD_MS):
        noted = UsedShare(noted.at(at_ms, HALF_LIFE_S), 0.4, at_ms)
    assert noted.used == pytest.approx(0.4, abs=1e-5)


@given(
    used=st.floats(0, 1),
    share=st.floats(0, 1),
    steps_ms=st.lists(st.integers(0, MAX_HELD_MS // 20), min_size=1, max_size=20),
    half_life_s=st.floats(1, 10 * 86400),
)
def test_the_decay_is_the_same_for_any_split_of_the_time(
    used: float, share: float, steps_ms: list[int], half_life_s: float
) -> None:
    noted = UsedShare(used, share, 0)
    now_ms = 0
    for step_ms in steps_ms:
        now_ms += step_ms
        noted = UsedShare(noted.at(now_ms, half_life_s), share, now_ms)
    assert noted.used == pytest.approx(UsedShare(used, share, 0).at(now_ms, half_life_s), abs=1e-9)
    assert 0 <= noted.used <= 1 + 1e-9


@given(pauses_ms=st.lists(st.integers(0, 10 * HALF_LIFE_MS), min_size=1, max_size=5))
def test_a_tenant_that_holds_nothing_only_fades(pauses_ms: list[int]) -> None:
    moments = [0]
    for pause_ms in pauses_ms:
        moments.append(moments[-1] + pause_ms)
    noted = UsedShare(0.8, 0.0, 0)
    for _, now_ms in pairwise(moments):
        noted = UsedShare(noted.at(now_ms, HALF_LIFE_S), 0.0, now_ms)
    assert noted.used == pytest.approx(0.8 * 2 ** (-moments[-1] / HALF_LIFE_MS))


def test_a_share_counts_for_a_minute_if_nobody_notes_it_again() -> None:
    noted = UsedShare(0.0, 1.0, 0)
    minute = noted.at(MAX_HELD_MS, HALF_LIFE_S)
    assert minute == pytest.approx(1 - 2 ** (-MAX_HELD_MS / HALF_LIFE_MS))
    weekend = noted.at(MAX_HELD_MS + HALF_LIFE_MS, HALF_LIFE_S)
    assert weekend == pytest.approx(minute / 2), "the pause of all leaders only lets it fade"


@given(used=st.floats(0, 1), share=st.floats(0, 1), at_ms=st.integers(0, 10**14))
def test_a_field_is_read_as_it_was_written(used: float, share: float, at_ms: int) -> None:
    read = UsedShare.of(UsedShare(used, share, at_ms).text)
    assert read is not None
    assert read.used == pytest.approx(used, abs=1e-11)
    assert read.share == pytest.approx(share, abs=1e-8)
    assert read.at_ms == at_ms


def test_a_used_share_of_all_nodes_is_forgotten_after_the_half_lives_that_the_key_is_kept() -> None:
    assert 2.0**-KEPT_HALF_LIVES < LEAST_USED


TOTALS = {"slots": 10_000, "gpu": 4000}


def test_the_shares_of_tenants_are_dominant_and_tasks_without_a_tenant_hold_what_is_left() -> None:
    lines = {
        "@a": AccountLine.of("n=3 slots=3 gpu=2"),
        "@a/x": AccountLine.of("n=2 slots=2"),
        "@b": AccountLine.of("n=1 slots=1"),
        "stripe": AccountLine.of("n=1 units=1"),
    }
    shares = shares_held(lines, TOTALS, {"slots": 6000, "gpu": 2000})
    assert shares == {
        "a": 0.5,
        "a/x": 0.2,
        "a/-": 0.5,
        "a/x/-": 0.2,
        "b": 0.1,
        "b/-": 0.1,
        "-": 0.2,
    }
    assert shares_held({}, {}, {}) == {}
    assert shares_held(lines, {"slots": 1000}, {})["a"] == 1.0, "nodes may have left"
    assert dominant_share({"slots": 5000}, TOTALS) == 0.5


def rows(shares: dict[str, float], fields: dict[str, str], now_ms: int = 5000) -> list[object]:
    raw = {name.encode(): text.encode() for name, text in fields.items()}
    return [*rows_to_note(shares, SharesByTenant.of(raw), now_ms, POLICY)]


def test_a_pass_notes_what_tenants_hold_and_once_that_they_hold_nothing() -> None:
    assert rows({"a": 0.5, "now": 0.5}, {}) == [("a", 0.5, HALF_LIFE_S, 1.0)]
    own = '[tenants."a/*"]\nhalf_life = "30m"\n'
    held_by_a = shares_held({"@a": AccountLine.of("n=5 slots=5")}, TOTALS, {"slots": 5000})
    noted = [*rows_to_note(held_by_a, SharesByTenant({}), 5000, read_policy(own))]
    assert noted == [("a/-", 0.5, HALF_LIFE_S, 1.0)], "the own tasks of a are not idle"
    text = UsedShare(0.1, 0.5, 0).text
    assert rows({}, {"a": text}) == [("a", 0.0, HALF_LIFE_S, 1.0)]
    idle = UsedShare(0.1, 0.0, 0).text
    assert rows({}, {"a": idle}) == [], "an idle tenant costs no write"
    assert rows({}, {"a": idle}, 40 * HALF_LIFE_MS) == [("a", 0.0, 0.0, 1.0)]


def test_a_pass_forgets_what_the_policy_does_not_count_and_what_cannot_be_read() -> None:
    assert rows({}, {"now": UsedShare(0.1, 0.5, 0).text}) == [("now", 0.0, 0.0, 1.0)]
    assert rows({"a": 0.5}, {"a": "y"}) == [(b"a", 0.0, 0.0, 1.0), ("a", 0.5, HALF_LIFE_S, 1.0)]
    good = UsedShare(0.1, 0.0, 0).text
    assert rows({}, {"No Tenant": good, "a": good}) == [(b"No Tenant", 0.0, 0.0, 1.0)]


# -- work ------------------------------------------------------------------------------------------

SLOTS = {"gpu:k80": 20, "gpu:v100": 20}


def times_of(**by_class: float) -> LearntTimes:
    """Return run times (ms) of the name `t` on nodes of the label `gpu`."""
    times = LearntTimes()
    for gpu, ms in by_class.items():
        for field in ("t", f"t gpu:{gpu}"):
            for _ in range(MIN_CLASS_RUNS):
                times.setdefault(field, RunTimes()).add(ms)
    return times


def test_a_slot_counts_as_its_throughput_beside_the_mean_of_all_slots() -> None:
    times = times_of(k80=200.0, v100=100.0)
    running = [HeldSlots("a", "t", "gpu:k80", 5), HeldSlots("b", "t", "gpu:v100", 5)]
    work = work_of(running, SLOTS, times)
    assert work["a"] == pytest.approx(2 / 3)
    assert work["b"] == pytest.approx(4 / 3)
    few_fast = work_of(running, {"gpu:k80": 30, "gpu:v100": 10}, times)
    assert few_fast["b"] == pytest.approx(2 / 1.25), "the mean is over the slots"


def test_a_parent_does_the_work_of_its_children_and_tasks_without_a_tenant_have_a_name() -> None:
    times = times_of(k80=300.0, v100=100.0)
    running = [
        HeldSlots("a/x", "t", "gpu:k80", 1),
        HeldSlots("a", "t", "gpu:v100", 1),
        HeldSlots("", "t", "gpu:v100", 7),
    ]
    work = work_of(running, SLOTS, times)
    assert work["a/x"] == pytest.approx(0.5)
    assert work["a/-"] == pytest.approx(1.5), "the own tasks of a"
    assert work["a"] == pytest.approx(1.0)
    assert work["-"] == pytest.approx(1.5)


@given(
    st.lists(
        st.builds(
            HeldSlots,
            st.sampled_from(["", "a", "a/x", "b"]),
            st.sampled_from(["t", "unknown"]),
            st.sampled_from([*SLOTS]),
            st.integers(0, 9),
        )
    ),
    st.floats(1.0, 1e6),
    st.floats(1.0, 1e6),
)
def test_work_is_1_where_classes_are_equal_and_all_slots_together_do_what_they_do(
    running: list[HeldSlots], k80: float, v100: float
) -> None:
    equal = work_of(running, SLOTS, times_of(k80=k80, v100=k80))
    assert all(work == pytest.approx(1.0) for work in equal.values())
    unknown = [of._replace(name="unknown") for of in running]
    assert set(work_of(unknown, SLOTS, times_of(k80=k80, v100=v100)).values()) <= {1.0}
    everything = [HeldSlots("a", "t", of_class, slots) for of_class, slots in SLOTS.items()]
    whole = work_of(everything, SLOTS, times_of(k80=k80, v100=v100))
    assert whole["a"] == pytest.approx(1.0), "a share by work is a part of the nodes too"


def test_work_is_noted_while_a_tenant_holds_something_and_forgotten_then() -> None:
    none = SharesByTenant({})
    policy = read_policy('[tenants]\ncount = "work"\n')
    assert [*rows_to_note({"a": 0.5}, none, 0, policy, {"a": 0.7})] == [("a", 0.5, 0.0, 0.7)]
    assert [*rows_to_note({"a": 0.5}, none, 0, policy, {"a": 1.0})] == []
    noted = SharesByTenant({"a": UsedShare(0.0, 0.5, 0, 0.7)})
    assert [*rows_to_note({}, noted, 0, policy, {})] == [("a", 0.0, 0.0, 1.0)]
    assert [*rows_to_note({"a": 0.5}, noted, 0, policy, {"a": 1.0})] == [("a", 0.5, 0.0, 1.0)]
    assert noted.work(policy) == {"a": 0.7}
    assert noted.work(read_policy("")) == {}, "the policy does not ask for it"
    assert shares_of_work({"a": 0.5, "b": 0.5}, {"a": 0.7, "b": 3.0}) == {"a": 0.35, "b": 1.0}


def test_a_tenant_whose_slots_do_less_work_goes_first() -> None:
    core = sees(40)
    core.on_policy(read_policy('[tenants]\ncount = "work"\n'))
    tell(wait(core, {"a": 1000, "b": 1000}), {"a": "slots=20", "b": "slots=20"})
    core.queue.set_used_shares({}, {"a": 0.75, "b": 1.25})
    assert shares(core) == {"a": 30, "b": 10}, "0.75 * (20 + 30) is 1.25 * (20 + 10)"


# -- the tree --------------------------------------------------------------------------------------

FAIR = '[tenants."*"]\nhalf_life = "30m"\n'


def counts_of(policy: str, used: dict[str, float]) -> dict[str, int]:
    """Return how many of 40 free slots of 100 tenants a and b get; each holds 30."""
    core = sees(40, policy=policy)
    core.queue.set_used_shares(used)
    tell(wait(core, {"a": 1000, "b": 1000}), {"a": "slots=30", "b": "slots=30"})
    return shares(core)


def test_past_use_counts_as_a_share_does() -> None:
    assert counts_of(FAIR, {}) == {"a": 20, "b": 20}
    assert counts_of(FAIR, {"a": 0.2}) == {"a": 10, "b": 30}
    assert counts_of(FAIR, {"a": 0.9, "b": 0.1}) == {"b": 40}


def test_without_a_half_life_past_use_does_not_count() -> None:
    assert counts_of("", {"a": 0.9}) == {"a": 20, "b": 20}


def test_a_guarantee_goes_before_past_use() -> None:
    policy = f"{FAIR}[tenants.a]\nhalf_life = '30m'\nat_least = {{slots = 40}}\n"
    assert counts_of(policy, {"a": 1.0}) == {"a": 10, "b": 30}


def test_past_use_that_is_heard_while_tasks_wait_changes_the_turns() -> None:
    core = sees(40, policy=FAIR)
    tell(wait(core, {"a": 1000, "b": 1000}), {"a": "slots=30", "b": "slots=30"})
    core.queue.begin_plan()
    core.queue.open_groups([0], ())
    tree = core.queue.tree
    assert tree is not None
    for used, first in (({"a": 0.9}, "b"), ({"b": 0.9}, "a"), ({"a": 0.9}, "b")):
        core.queue.set_used_shares(used)
        pick = tree.pick()
        assert pick is not None
        assert pick.kind.tenant == first


def test_tasks_without_a_tenant_have_past_use_too() -> None:
    core = sees(40, policy=FAIR)
    core.queue.set_used_shares({"-": 0.5})
    tell(wait(core, {"a": 1000, "": 1000}))
    # 60 slots are held by nobody that is known, so tasks without a tenant hold them
    assert shares(core) == {"a": 40}


def test_the_own_tasks_of_a_tenant_have_the_half_life_of_its_children() -> None:
    core = sees(40, policy='[tenants."a/*"]\nhalf_life = "30m"\n')
    core.queue.set_used_shares({"a/-": 0.3})
    tell(wait(core, {"a": 1000, "a/x": 1000}))
    assert shares(core) == {"a/x": 35, "a": 5}


# -- what people see -------------------------------------------------------------------------------


def test_people_see_the_used_share_beside_the_share() -> None:
    lines = {"@acme": AccountLine.of("n=1 slots=2"), "@now": AccountLine.of("n=1 slots=2")}
    views = tenant_views(POLICY, lines, {}, {}, TOTALS, {"acme": 0.25, "now": 0.5})
    assert {view.name: (view.share, view.used_share) for view in views} == {
        "acme": (0.2, 0.25),
        "now": (0.2, None),
    }


def test_an_explanation_says_which_tenant_goes_first_because_it_has_used_less() -> None:
    def why(tenant: str, shares: dict[str, float], used: dict[str, float]) -> str:
        return goes_first_by_use(POLICY, tenant, ["acme", "beta/x"], {}, shares, used)

    shares = {"acme": 0.1, "beta": 0.3}
    assert why("acme", shares, {"acme": 0.4, "beta": 0.05}) == (
        "tenant acme holds 10% of the nodes and has used 40%; tenant beta goes first: it holds 30% "
        "and has used 5%"
    )
    assert why("acme", shares, {"acme": 0.2, "beta": 0.05}) == "", "acme goes first"
    assert why("beta/x", shares, {"beta": 0.4}) == "", "acme goes first because it holds less"
    assert why("acme", {}, {}) == ""


def test_the_turn_that_people_are_told_is_that_of_the_tree() -> None:
    """No half-life: what is noted of `now` counts in neither."""
    core = sees(40, policy=DOCUMENT)
    tell(wait(core, {"now": 9, "later": 9}), {"now": "slots=30", "later": "slots=30"})
    used = {"now": 0.9, "later": 0.1}
    core.queue.set_used_shares(used)
    shares = {"now": 0.3, "later": 0.3}
    assert core.queue.tree is not None
    for tenant, rival in (("now", "later"), ("later", "now")):
        why = goes_first_by_use(POLICY, tenant, [tenant, rival], {}, shares, used)
        assert bool(why) == core.queue.tree.goes_before(rival, tenant)
