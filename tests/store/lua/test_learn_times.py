"""Learnt run times: nodes add the runs that they have seen; a name with many runs forgets half of them."""

from collections import Counter
from typing import Any, cast

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.needs import Resources
from parsync_redis.model.octaves import TimeHistogram
from parsync_redis.model.times import CLASS, HALVE_ABOVE, PLAIN, RunTimes, bin_of, class_of, end_of
from parsync_redis.store import Store
from parsync_redis.store.reads.times import (
    MEANS_KEPT_S,
    LearntMeans,
    read_names,
    read_times,
    read_times_of,
    runs_of,
)
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver


def times(*runs_ms: float) -> RunTimes:
    found = RunTimes()
    for ms in runs_ms:
        found.add(ms)
    return found


def test_the_run_times_learnt_by_two_nodes_add_up(drive: Driver):
    drive.run(drive.commands.learn_times({"work": times(1, 2, 4), "other": times(100)}))
    assert drive.run(drive.commands.learn_times({"work": times(3)})) == 2
    both = times(1, 2, 4, 3)
    by_name = read_times(drive.store)
    assert (by_name["work"].count, by_name["work"].total_ms, by_name["work"].bins) == (
        4,
        10,
        both.bins,
    )
    (other, work) = read_names(drive.store)
    assert (other.name, other.count, other.mean_ms) == ("other", 1, 100)
    assert (work.name, work.count, work.mean_ms) == ("work", 4, 2.5)
    assert 4 <= work.p95_ms <= 4.8


def test_a_name_forgets_half_of_what_it_knows(drive: Driver):
    drive.run(
        drive.commands.learn_times({"work": RunTimes(HALVE_ABOVE, 5.0, Counter({3: HALVE_ABOVE}))})
    )
    drive.run(drive.commands.learn_times({"work": RunTimes(3, 5.0, Counter({3: 2, 9: 1}))}))
    found = read_times(drive.store)["work"]
    assert (found.count, dict(found.bins)) == (HALVE_ABOVE + 3, {3: HALVE_ABOVE // 2 + 1})


def test_octaves_add_up_and_are_never_halved(drive: Driver):
    many = RunTimes(
        HALVE_ABOVE, 5.0, Counter({3: HALVE_ABOVE}), times(*[1] * 900, *[3] * 100).octaves
    )
    for _ in range(2):
        drive.run(drive.commands.learn_times({"work": many, "work zone:a": times(1)}))
    drive.run(drive.commands.learn_times({"work": RunTimes(1, 1.0, Counter({3: 1}))}))
    by_name = read_times(drive.store)
    assert (by_name["work"].bins[3], by_name["work"].octaves[:3]) == (
        HALVE_ABOVE // 2,
        [1800, 0, 200],
    )
    assert runs_of(by_name) == {"work": TimeHistogram(11.0, by_name["work"].octaves)}


def test_a_name_is_shown_by_class_only_if_it_ran_on_several(drive: Driver):
    drive.run(
        drive.commands.learn_times({"work": times(1, 9), "work gpu=2": times(9), "other": times(5)})
    )
    drive.run(drive.commands.learn_times({"other gpu=2": times(5)}))
    assert [(one.name, one.node_class, one.count) for one in read_names(drive.store)] == [
        ("other", "", 1),
        ("work", "", 2),
        ("work", "gpu=2", 1),
    ]
    learnt = read_times_of(drive.store, ["work", "work gpu=2", "nobody"])
    assert learnt == {
        name: found for name, found in read_times(drive.store).items() if name.startswith("work")
    }
    assert learnt.of("work", Resources.of(4, {"gpu": 2})) == learnt["work gpu=2"]
    assert learnt.of("work", Resources.of(4, {"gpu": 1})) == learnt["work"]


def test_classes_leave_room_for_names(drive: Driver):
    many: dict[str, str] = {f"work class:{number}": "1 1.000 3:1" for number in range(9_000)}
    drive.store.client.hset(drive.keys.shared("times"), mapping=cast(Any, many))
    assert drive.run(drive.commands.learn_times({"work class:new": times(1)})) == 9_000
    assert (
        drive.run(drive.commands.learn_times({"work": times(1), "work class:1": times(1)})) == 9_001
    )


def test_the_class_of_a_node_is_its_amounts_and_labels() -> None:
    assert class_of(Resources.of(4)) == PLAIN
    labels = {"zone": ["b", "a"]}
    offer = Resources.of(4, {"gpu": 0.5}, labels, reserved=[("celery.tasks", "abc")])
    assert class_of(offer) == class_of(Resources.of(8, {"gpu": 0.5}, labels)) == "gpu=0.5 zone:a,b"
    assert (
        len(class_of(Resources.of(1, None, {"zone": [f"zone-{number}" for number in range(60)]})))
        <= CLASS
    )


def test_a_run_is_expected_to_end_as_the_latest_that_ran_as_long_at_least():
    learnt = times(*[100.0] * 9, 1000.0)
    assert learnt.end_ms(5000, 5000) == 5190, "the mean of all"
    assert 1000 <= learnt.end_ms(5000, 5200) - 5000 <= end_of(bin_of(1000)), "it is no short one"
    assert learnt.end_ms(5000, 9000) == 13000, "none ran so long"


def test_a_damaged_field_is_replaced_and_not_read(drive: Driver):
    drive.store.client.hset(drive.keys.shared("times"), "work", "nonsense")
    assert read_names(drive.store) == []
    drive.run(drive.commands.learn_times({"work": times(1)}))
    assert read_times(drive.store)["work"].count == 1


def test_malformed_run_times_are_refused(drive: Driver):
    with pytest.raises(BrokenContract, match="not the times of a name"):
        drive.run(drive.commands.learn_times({"work": RunTimes(1, 1.0)}))


class Text(RunTimes):
    """Times whose field is any text."""

    text = ""


@pytest.mark.dealt
@pytest.mark.parametrize(
    "text",
    [
        "1 1 ,",
        "1 1 3:1,",
        "1 1 3:1:1",
        "1 1. 3:1",
        "1 1.0001 3:1",
        "1 -1 3:1",
        "1 1 -",
        "1 1 3:1 ",
        "1 1 3:1 -",
        "1 1 3:1 2:1,",
        "1 1 3:1 2:1 2:1",
        "1 1 3:1 1000:1",
    ],
)
def test_the_script_and_its_readers_refuse_the_same_malformed_run_times(drive: Driver, text: str):
    wrong = Text()
    wrong.text = text
    with pytest.raises(BrokenContract, match="not the times of a name"):
        drive.run(drive.commands.learn_times({"work": wrong}))
    with pytest.raises(ValueError, match="not the times of a name"):
        RunTimes.of(text)


def test_the_mean_of_short_runs_is_not_rounded_away(drive: Driver):
    for _ in range(10):
        drive.run(drive.commands.learn_times({"short": times(0.3)}))
    assert [name.mean_ms for name in read_names(drive.store)] == [0.3]


@pytest.mark.parametrize("ms", [0.01, 0.2, 1, 49.9, 50, 3_600_000])
def test_a_quarter_octave_ends_within_a_fifth(ms: float):
    assert ms <= end_of(bin_of(ms)) <= max(1.2 * ms, 0.15)


def test_most_runs_end_by_the_95th_percentile():
    assert times(*[1] * 95, *[100] * 5).p95_ms < 1.3
    assert times(*[1] * 94, *[100] * 6).p95_ms >= 100
    assert RunTimes().p95_ms == 0


def test_a_process_that_submits_reads_the_mean_of_a_name_once_in_a_while(drive: Driver):
    drive.run(drive.commands.learn_times({"work": times(2, 4)}))
    now_s = [5.0]
    means = LearntMeans(drive.store, lambda: now_s[0])
    assert means.of(["work", "new", "work"]) == {"work": 3.0, "new": None}
    drive.run(drive.commands.learn_times({"work": times(9), "new": times(7)}))
    now_s[0] += MEANS_KEPT_S - 1
    assert means.of(["work", "new"]) == {"work": 3.0, "new": None}
    now_s[0] += 1
    assert means.of(["work"]) == {"work": 5.0}


def test_a_process_that_submits_keeps_the_means_of_a_bounded_number_of_names(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("parsync_redis.store.reads.times.MAX_MEANS", 3)
    drive.run(drive.commands.learn_times({"a": times(2), "b": times(4)}))
    means = LearntMeans(drive.store, lambda: 0.0)
    assert means.of(["a", "x", "y"])["a"] == 2.0
    assert means.of(["a", "b"]) == {"a": 2.0, "b": 4.0}


def test_a_server_that_does_not_answer_leaves_the_mean_as_it_was():
    with EmbeddedServer() as server, connect(server.url) as client:
        store = Store(client, "c")
        store.run(store.commands.learn_times({"work": times(2, 4)}))
        now_s = [0.0]
        means = LearntMeans(store, lambda: now_s[0])
        assert means.of(["work"]) == {"work": 3.0}
        server.stop()
        now_s[0] += MEANS_KEPT_S
        assert means.of(["work", "new"]) == {"work": 3.0, "new": None}
