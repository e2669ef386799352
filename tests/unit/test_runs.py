"""The table of runs: one run in a slot, and the first outcome counts."""

from typing import Any, cast

from parsync_redis.model.place import Place
from parsync_redis.worker.node.runs import Run, Runs


def run(task: str = "t", slot: int = 0, attempt: str = "1@1") -> Run:
    return Run(Place(task, attempt, 0, "n", (slot,), 1, 0))


def ended_and_waiting() -> tuple[Runs, Run, Run]:
    """Return a run that has ended in slot 0, and one that waits at slot 1."""
    runs = Runs()
    ended = run("ended")
    waits = run("waits", slot=1)
    waits.waits = True
    assert runs.enter(ended)
    runs.end(ended, "succeeded")
    assert runs.enter(waits)
    return runs, ended, waits


def test_of_one_slot_only_one_run_goes_on_and_a_known_run_is_not_entered_again() -> None:
    runs = Runs()
    first = run()
    assert runs.enter(first)
    assert not runs.enter(run())
    assert not runs.enter(run("other"))
    assert runs.enter(run("other", slot=1))
    assert runs.end(first, "succeeded")
    assert not runs.enter(run()), "it has ended, but its slot is not released"
    assert runs.enter(run("third")), "the slot runs nothing any more"


def test_a_run_in_several_slots_is_not_entered_while_another_goes_on_in_any_of_them() -> None:
    runs = Runs()
    wide = Run(Place("wide", "1@1", 0, "n", (0, 1), 2, 0))
    dying = run("dying", slot=1)
    assert runs.enter(dying)
    assert not runs.enter(wide), "its incarnation was given up, but it is not dead yet"
    runs.end(dying, "lost")
    assert runs.enter(wide)
    assert not runs.enter(run("other", slot=1))


def test_of_a_runs_outcomes_the_first_counts() -> None:
    runs = Runs()
    a_run = run()
    runs.enter(a_run)
    assert runs.end(a_run, "lost")
    assert not runs.end(a_run, "succeeded")
    assert a_run.outcome == "lost"


def test_a_run_whose_slots_are_free_is_forgotten() -> None:
    runs = Runs()
    for i in range(1000):
        a_run = run(f"t{i}")
        assert runs.enter(a_run)
        a_run.request = cast(Any, object())
        assert runs.going() == [a_run]
        runs.end(a_run, "succeeded")
        runs.drop([a_run])
    assert len(runs) == 0
    assert runs.keys() == set()
    assert runs.going() == []


def test_a_slot_that_is_being_freed_is_idle_only_for_what_holds_it_anew() -> None:
    runs, ended, _ = ended_and_waiting()
    assert runs.idle(1) == [0]
    assert runs.may_free(ended)
    assert runs.idle(1) == [], "a task may be claimed there now"
    anew = run("anew")
    anew.waits = True
    assert runs.enter(anew)
    assert runs.idle(1) == [0]


def test_a_slot_is_not_freed_while_somebody_asks_to_start_a_run_there() -> None:
    runs, ended, waits = ended_and_waiting()
    assert runs.idle(1, reserve=True) == [0]
    assert not runs.may_free(ended)
    runs.give([(waits, (0,))])
    assert not runs.may_free(ended), "it runs there"
    runs.end(waits, "succeeded")
    assert runs.may_free(ended)
