"""A scheduler that hears no ticks goes on by its own clock, and subscribes anew after a while. Pure."""

from parsync_redis.scheduler.process.tick_clock import DEAF_S, SILENT_INTERVALS, TickClock

INTERVAL_S = 0.05


def test_after_three_intervals_without_a_tick_the_own_clock_goes_on_until_a_tick_is_heard() -> None:
    clock = TickClock(0.0)
    clock.on_tick(7, 0.0)
    clock.start_own(SILENT_INTERVALS * INTERVAL_S - 0.001, INTERVAL_S)
    assert not clock.is_own
    clock.start_own(SILENT_INTERVALS * INTERVAL_S, INTERVAL_S)
    assert clock.is_own
    assert clock.own_ticks(SILENT_INTERVALS * INTERVAL_S, INTERVAL_S) == [8]
    clock.on_tick(12, 0.2)
    assert not clock.is_own
    assert clock.own_ticks(0.3, INTERVAL_S) == []


def test_a_long_silence_renews_the_subscription_once_and_a_short_silence_does_not() -> None:
    clock = TickClock(0.0)
    clock.on_tick(1, 0.0)
    assert not clock.becomes_deaf(DEAF_S - 0.001, INTERVAL_S)
    assert [clock.becomes_deaf(now_s, INTERVAL_S) for now_s in (DEAF_S, DEAF_S + 1, 100.0)] == [
        True,
        False,
        False,
    ]
    clock.on_tick(2, 100.0)
    assert not clock.becomes_deaf(100.1, INTERVAL_S)
    assert clock.becomes_deaf(100.0 + DEAF_S, INTERVAL_S), "the next silence is another one"


def test_rare_ticks_are_no_silence() -> None:
    clock = TickClock(0.0)
    assert not clock.becomes_deaf(2 * DEAF_S, DEAF_S)
    assert clock.becomes_deaf(SILENT_INTERVALS * DEAF_S, DEAF_S)


def test_a_lost_subscription_is_renewed_at_once() -> None:
    clock = TickClock(0.0)
    clock.on_tick(1, 0.0)
    clock.on_lost()
    clock.start_own(0.001, INTERVAL_S)
    assert clock.is_own
    assert clock.becomes_deaf(0.001, INTERVAL_S)
