"""A leader measures ages by its own clock, because Redis keeps no time of these facts."""

from parsync_redis.scheduler.process.lease_watch import AgeTracker


def test_the_age_of_a_thing_is_since_it_was_first_seen():
    watch = AgeTracker(1.0)
    assert watch.look(10.0, ["a"]) == {"a": 0.0}
    assert watch.look(10.5, ["a", "b"]) == {"a": 0.5, "b": 0.0}


def test_the_age_of_a_thing_that_returns_begins_anew():
    watch = AgeTracker(1.0)
    for now_s, things in ((10.0, ["a"]), (10.5, []), (11.0, ["a"])):
        ages = watch.look(now_s, things)
    assert ages == {"a": 0.0}


def test_an_age_tracker_that_paused_forgets_all_ages():
    watch = AgeTracker(1.0)
    watch.look(10.0, ["a"])
    assert watch.look(11.0, ["a"]) == {"a": 1.0}
    assert watch.look(12.1, ["a"]) == {"a": 0.0}


def test_things_may_be_looked_at_piece_by_piece():
    watch = AgeTracker(1.0)
    for at in range(6):  # a, then b, then a...; after each two all have been looked at
        watch.begin(float(at))
        ages = watch.age_s(float(at), "ab"[at % 2])
        if at % 2:
            watch.forget_unseen()
    assert ages == 4.0
    watch.begin(6.0)
    watch.forget_unseen()
    assert watch.age_s(6.0, "a") == 0.0, "in this round nobody saw it before"


def test_reset_forgets():
    watch = AgeTracker(1.0)
    watch.look(10.0, ["a"])
    watch.reset()
    assert watch.look(10.1, ["a"]) == {"a": 0.0}
