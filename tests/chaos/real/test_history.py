"""The history check finds planted errors and accepts correct histories.

Numbers of promises: docs/invariants.md.
"""

from math import inf

from tests.chaos.real.history import (
    Event,
    Run,
    Span,
    check_leases,
    check_runs,
    check_task,
    overlaps,
    read_calls,
    read_ticks,
    slots_of_runs,
)

PLACE = {"id": "t", "node": "n1", "slot": "0", "inc": "1"}
END_S = 100.0


def event(verb, word, call_s, back_s=None, **item):
    """Return the event of a call of process p: its reply came half a second later, or at back_s;
    never if the word is "".
    """
    return Event(
        "p",
        call_s,
        inf if not word else call_s + 0.5 if back_s is None else back_s,
        verb,
        item,
        word,
    )


def start(word, call_s, attempt="1@7", **more):
    return event("start", word, call_s, attempt=attempt, **PLACE | more)


def finish(word, call_s, attempt="1@7", outcome="succeeded", **more):
    return event("finish", word, call_s, attempt=attempt, outcome=outcome, **PLACE | more)


def requeue(word, call_s, attempt="1@7"):
    return event("requeue", word, call_s, attempt=attempt, **PLACE)


SUBMIT = event("submit", "submitted", 0, id="t")


def right(*events, final="succeeded"):
    return check_task(events, final, END_S) is None


def test_a_history_is_right_if_the_task_ran_once_and_ended_with_the_accepted_outcome() -> None:
    plain = SUBMIT, start("ok", 1), finish("ok", 2)
    assert right(*plain)
    assert not right(*plain, final="failed")
    assert not right(*plain, final="running")
    assert right(
        SUBMIT,
        event("submit", "exists", 0.2, id="t"),
        start("ok", 1),
        start("yours", 1.6),
        finish("ok", 3),
    )


def test_promise_1_an_acknowledged_task_that_is_gone_is_found() -> None:
    assert not right(SUBMIT, final="gone")
    assert not right(
        SUBMIT, event("submit", "submitted", 5, id="t"), start("ok", 6), finish("ok", 7)
    )
    assert right(event("submit", "", 0, id="t"), final="none")


def test_promise_4_a_second_start_of_an_attempt_is_found() -> None:
    assert not right(SUBMIT, start("ok", 1), start("ok", 2), finish("ok", 3))
    assert not right(
        SUBMIT, start("ok", 1, "2@7"), requeue("pending", 2, "2@7"), start("ok", 3), finish("ok", 4)
    )
    assert right(
        SUBMIT, start("ok", 1), requeue("pending", 2), start("ok", 3, "2@7"), finish("ok", 4, "2@7")
    )


def test_promise_4_a_second_accepted_outcome_and_a_stale_one_that_counts_are_found() -> None:
    assert not right(SUBMIT, start("ok", 1), finish("ok", 2), finish("ok", 3))
    assert right(SUBMIT, start("ok", 1), finish("ok", 2), finish("yours", 3))
    back = SUBMIT, start("ok", 1), requeue("pending", 2)
    assert not right(*back, finish("ok", 3))
    assert right(*back, finish("stale", 3), start("ok", 4, "2@7"), finish("ok", 5, "2@7"))


def test_a_start_of_a_running_task_needs_that_it_went_back_first() -> None:
    assert not right(
        SUBMIT, start("ok", 1), start("ok", 2, "2@7", node="n2"), finish("ok", 3, "2@7", node="n2")
    )
    lost = requeue("", 1.5)  # a leader that was killed while it asked
    assert right(
        SUBMIT,
        start("ok", 1),
        lost,
        start("ok", 2, "2@7", node="n2"),
        finish("ok", 3, "2@7", node="n2"),
    )


def test_an_unanswered_request_may_have_run_later_or_never() -> None:
    assert right(
        event("submit", "", 0, id="t"),
        event("submit", "exists", 1, id="t"),
        start("ok", 2),
        finish("ok", 3),
    )
    assert right(SUBMIT, start("", 1), finish("ok", 2))
    assert right(SUBMIT, start("ok", 1), finish("", 2), finish("yours", 5))
    assert right(SUBMIT, start("ok", 1), finish("", 2), finish("ok", 5))
    # before it was asked
    assert not right(SUBMIT, start("", 3), finish("ok", 1, outcome="succeeded"))


def test_only_calls_that_overlap_may_have_happened_in_either_order() -> None:
    asked = event("cancel", "cancelled", 1, 3, id="t")
    assert right(SUBMIT, start("refused", 2), asked, final="cancelled")
    assert not right(
        SUBMIT, event("cancel", "cancelled", 1, id="t"), start("ok", 5), final="running"
    )
    assert not right(
        SUBMIT, start("ok", 1), event("cancel", "cancelled", 5, id="t"), final="cancelled"
    )


def claim(task, word, call_s, slots="0"):
    return event("commit", word, call_s, task=task, attempt="1@1", node="n1", inc="1", slots=slots)


def release(task, word, call_s):
    return event("release", word, call_s, task=task, attempt="1@1", node="n1", inc="1", slot="0")


def test_promise_2_two_leases_of_a_slot_are_found() -> None:
    first = (claim("a", "held", 0), release("a", "freed", 5))
    second = (claim("b", "held", 2), release("b", "freed", 9))
    assert check_leases([*first, *second]) == [
        "promise 2: two leases of slot n1/0: task a attempt 1@1 and task b attempt 1@1"
    ]
    # the second lease may have begun just after the first ended
    assert not check_leases([*first, claim("b", "held", 4.9), release("b", "freed", 9)])
    assert check_leases([claim("c", "held", 1, "1,0"), release("c", "freed", 7), *first])
    assert not check_leases([*first, claim("b", "conflict", 2), release("b", "none", 9)])


def test_a_lease_released_before_its_commit_was_answered_is_at_no_moment_certain() -> None:
    late = event("commit", "held", 0, 6, task="b", attempt="1@1", node="n1", inc="1", slots="0")
    assert not check_leases(
        [late, release("b", "freed", 1), claim("a", "held", 2), release("a", "freed", 9)]
    )


def run(task, slot, began_s, last_s, attempt="1@1", node="n1"):
    return Run(task, attempt, node, slot, 7, began_s, last_s)


def test_promise_2_two_runs_in_a_slot_are_found_also_in_the_second_of_several() -> None:
    assert not check_runs([run("a", "0", 1, 2), run("b", "0", 2, 3), run("c", "1", 1, 3)], {})
    assert "slot n1/0" in check_runs([run("a", "0", 1, 2.5), run("b", "0", 2, 3)], {})[0]
    wide = slots_of_runs([claim("a", "held", 0, "0,1")])
    assert "slot n1/1" in check_runs([run("a", "0", 1, 3), run("b", "1", 2, 4)], wide)[0]


def test_a_run_is_in_the_slots_that_its_worker_gave_it() -> None:
    given = event("give", "given", 2, task="b", attempt="1@1", node="n1", slot="0", slots="1")
    slots = slots_of_runs([claim("a", "held", 0), claim("b", "held", 1), given])
    assert not check_runs([run("a", "0", 1, 3), run("b", "0", 2, 4)], slots)
    assert "slot n1/1" in check_runs([run("b", "0", 2, 4), run("c", "1", 3, 5)], slots)[0]


def test_two_runs_of_a_task_and_an_attempt_that_begins_twice_are_found() -> None:
    again = [run("a", "0", 1, 3), run("a", "0", 2, 4, "2@1", "n2")]
    assert "two runs of task a" in check_runs(again, {})[0]
    assert "promise 4" in check_runs([run("a", "0", 1, 2), run("a", "0", 3, 4)], {})[0]


def test_overlaps_are_found_behind_a_shorter_one() -> None:
    long = Span("k", 0, 10, "long")
    short = Span("k", 1, 2, "short")
    late = Span("k", 5, 6, "late")
    assert overlaps([late, short, long]) == [(long, short), (long, late)]


def test_a_recorded_history_is_read_in_the_order_of_its_replies() -> None:
    lines = [
        '["call", 1, 1.0, "start", [{"id": "t"}]]',
        '["call", 2, 1.1, "finish", [{"id": "a"}, {"id": "b"}]]',
        '["reply", 2, 1.2, ["ok", "stale"]]',
    ]
    events = list(read_calls("p", lines))
    assert [(e.verb, e.task, e.word, e.back_s) for e in events] == [
        ("finish", "a", "ok", 1.2),
        ("finish", "b", "stale", 1.2),
        ("start", "t", "", inf),
    ]
    # event, task, attempt, node, slot, process id, seconds
    ticks = [
        "start t 1@1 n1 0 7 1.0",
        "tick t 1@1 n1 0 7 1.2",
        "end t 1@1 n1 0 7 1.3",
        "start u 1@2 n1 0 7 2.0",
    ]
    runs = read_ticks(ticks)
    assert [(r.task, r.began_s, r.last_s, r.ended) for r in runs] == [
        ("t", 1.0, 1.3, True),
        ("u", 2.0, 2.0, False),
    ]
