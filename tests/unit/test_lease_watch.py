"""An observer judges a process dead only if it has itself seen the counter stand still for one
lease.
"""

from parsync_redis.scheduler.process.lease_watch import LeaseWatch


def test_a_counter_that_moves_is_never_judged() -> None:
    watch = LeaseWatch(lease_s=1.0)
    assert all(not watch.look(t * 0.25, {"n1": t}) for t in range(40))


def test_a_counter_is_judged_after_it_stood_still_for_one_lease_and_not_before() -> None:
    watch = LeaseWatch(lease_s=1.0)
    assert [bool(watch.look(t * 0.25, {"n1": 7})) for t in range(6)] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]


def test_an_observer_that_was_not_watching_starts_anew() -> None:
    watch = LeaseWatch(lease_s=1.0)
    watch.look(0.0, {"n1": 7})
    assert not watch.look(5.0, {"n1": 7}), "five seconds passed, but nobody watched"
    assert not watch.look(5.4, {"n1": 7})
    assert not watch.look(5.8, {"n1": 7})
    assert watch.look(6.0, {"n1": 7}) == ["n1"]


def test_after_a_reset_nobody_is_judged_for_one_lease() -> None:
    watch = LeaseWatch(lease_s=1.0)
    for t in range(4):
        watch.look(t * 0.25, {"n1": 7})
    watch.reset()
    assert not any(watch.look(1.0 + t * 0.25, {"n1": 7}) for t in range(4))
    assert watch.look(2.0, {"n1": 7}) == ["n1"]


def test_a_holder_that_went_and_came_back_is_watched_anew() -> None:
    watch = LeaseWatch(lease_s=1.0)
    watch.look(0.0, {"n1": 7})
    watch.look(0.5, {})
    assert not watch.look(1.0, {"n1": 7})
