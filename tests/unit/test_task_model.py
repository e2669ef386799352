"""The options of a task are checked with clear answers; its status is read from its record."""

from dataclasses import replace

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.model.node import Lease, Node
from parsync_redis.model.options import DEFAULT_OPTIONS, TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.record import Record
from parsync_redis.model.status import Setback, TaskStatus
from parsync_redis.model.task import FINAL, TRANSITIONS, StoredState, TaskState, state_word


def test_empty_needs_mean_one_slot():
    assert TaskOptions.of(None) == TaskOptions.of({}) == DEFAULT_OPTIONS
    assert DEFAULT_OPTIONS.needs.text == "slots=1"


def test_everything_may_be_asked():
    options = TaskOptions.of(
        {
            "slots": 2,
            "resources": {"mem": "4GiB"},
            "require": {"gpu_model": "a100"},
            "priority": 9,
            "strategy": "quality",
            "wait_for_capacity": True,
        }
    )
    assert options.needs.text == "slots=2 mem=4294967296 gpu_model:a100"
    assert (options.priority, options.strategy, options.wait_for_capacity) == (9, "quality", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"slot": 1},
            "unknown parsync option 'slot': known are slots, resources, require, tolerate, apart, "
            "near, ",
        ),
        ({3: 1}, "unknown parsync option 3"),
        ("slots=1", "must be a mapping"),
        ({"slots": 0}, "slots=0 is not valid"),
        ({"resources": ["gpu"]}, r"resources=\['gpu'\] is not valid: it must be a mapping"),
        ({"require": "zone:a"}, "require='zone:a' is not valid: it must be a mapping"),
        ({"resources": {"gpu": -1}}, "is not an amount"),
        ({"require": {"zone": "a b"}}, "label value"),
        ({"priority": 10}, "priority=10 is not valid"),
        ({"priority": -1}, "from 0 to 9"),
        ({"priority": True}, "priority=True"),
        ({"priority": 1.5}, "priority=1.5"),
        (
            {"strategy": "fast"},
            "strategy='fast' is not valid: it must be one of latency, quality, adaptive",
        ),
        ({"strategy": []}, "is not valid"),
        ({"wait_for_capacity": "yes"}, "True or False"),
        ({"expires": 0}, "expires=0 is not valid: it must be a number of seconds above 0"),
        ({"expires": "soon"}, "expires='soon'"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options: object, message: str):
    with pytest.raises(InvalidInput, match=message):
        TaskOptions.of(options)  # type: ignore[arg-type]


def test_a_final_state_changes_only_when_the_dead_are_revived_or_celery_publishes_the_id_again():
    assert {state for state in TaskState if state.final} == FINAL
    final = {state for state in StoredState if state.final}
    changes = {change for change in TRANSITIONS if change[0].final}
    assert changes == {(StoredState.DEAD, "revive"), *((state, "submit") for state in final)}


def test_every_state_can_be_reached_and_left():
    reached = {state for after in TRANSITIONS.values() for state in after} | {StoredState.GONE}
    assert reached == set(StoredState)
    assert {before for before, _ in TRANSITIONS} == set(StoredState)


def test_a_stored_state_is_told_as_a_state_of_a_task():
    """The states that a program shows are never pending or taken."""
    assert {state_word(state) for state in StoredState} == set(TaskState)
    assert state_word("revived") == "revived"
    told = {state: TaskStatus.of(known(state, end=f"{state} 1900 ")).state for state in StoredState}
    assert told == {state: state_word(state) for state in StoredState}
    (lost,) = TaskStatus.of(
        known("pending", extra=["history", "1@17 taken n1/3 inc=2 since=1 until=2 why"])
    ).history
    assert lost.state is TaskState.WAITING


def known(state, line="0@17 8121795630000017 17 17 - work slots=1", end="", kind_line="", extra=()):
    """Return the record that read_tasks gives of a task without a place."""
    return Record.of("a", 2000, [state, line, "", "", end, kind_line, list(extra)])


def test_a_record_reads_as_a_status():
    line = "+2@17 3621795630000017 18 17 starts=1,ran=900,max=4,expires=5000 work slots=1 latency"
    run = "a 3@17.s1.482913 p1 n1/0 inc=1 since=950 started=1000"
    extra = ["cancel", "SIGTERM", "why", "its node n2 was lost"]
    record = Record.of(
        "a", 2000, [b"running", line.encode(), b"3@17.s1.482913", run.encode(), b"", b"", extra]
    )
    status = TaskStatus.of(record)
    assert (status.state, status.attempt, status.starts, status.partition, status.slot) == (
        TaskState.RUNNING,
        3,
        2,
        1,
        0,
    )
    assert (status.name, status.needs, status.strategy, status.priority) == (
        "work",
        "slots=1",
        "latency",
        5,
    )
    assert (status.scheduler, status.max_starts, status.expires_ms) == ("s1", 4, 5000)
    assert status.cancel_asked
    assert status.times == {
        "submitted": 17,
        "ready": 18,
        "placed": 950,
        "started": 1000,
        "finished": None,
    }


def test_a_history_reads_as_setbacks_and_malformed_entries_are_ignored():
    history = (
        "1@17 running n1/3 inc=2 since=1000 until=2000 its node n1 was lost\nno setback\n"
        "2@17 placed a/b/0 inc=1 since=3 until=4 "
    )
    first, second = TaskStatus.of(known("dead", extra=["history", history])).history
    assert first == Setback(
        "1@17", TaskState.RUNNING, "n1", 3, 2, 1000, 2000, "its node n1 was lost"
    )
    assert (second.state, second.node, second.slot, second.why) == (TaskState.PLACED, "a/b", 0, "")


def test_why_a_task_waits_is_the_reason_of_its_kind_once_it_is_due():
    kind_line = "1 17 17 only node n1 fits: it is full"
    own = ["why", "its node n2 was lost"]
    assert (
        TaskStatus.of(known("pending", kind_line=kind_line, extra=own)).why
        == "only node n1 fits: it is full"
    )
    assert (
        TaskStatus.of(known("pending", kind_line="1 17 17", extra=own)).why
        == "its node n2 was lost"
    )
    late = known("pending", "0@17 8121795630000017 90000 17 - work slots=1", kind_line=kind_line)
    assert TaskStatus.of(late).why == ""


def test_the_end_of_a_task_reads_as_when_and_why():
    status = TaskStatus.of(
        known(
            "failed",
            "+0@17 8121795630000017 17 17 starts=2 work slots=1",
            "failed 1900 by hand: no",
        )
    )
    assert (status.state, status.why, status.times["finished"], status.starts) == (
        "failed",
        "by hand: no",
        1900,
        2,
    )


def test_a_damaged_line_is_said_to_be_damaged():
    assert TaskStatus.of(known("pending", "x")).why == "its record is damaged: 'x'"
    assert TaskStatus.of(
        known("failed", "x", "failed 1900 its record is damaged: line")
    ).why.endswith(": line")
    assert TaskStatus.of(known("lost")).state == "gone"


def test_an_empty_record_is_a_task_that_is_gone():
    assert TaskStatus.of(Record("a", "gone")).state == TaskState.GONE


def test_a_node_reads_from_its_line():
    node = Node.of("n1", "up inc=3 drain=1 first=8 span=4 score=9.5 slots=2 gpu=2 zone:a")
    assert (node.state, node.inc, node.draining, node.first, node.span, node.score) == (
        "up",
        3,
        True,
        8,
        4,
        9.5,
    )
    assert node.offer.text == "slots=2 gpu=2 zone:a"


def test_a_lease_reads_from_its_line():
    text = "a81f 1@17.s1.482913 p0 n1/3,4 inc=3 gpu=1 since=1732161994123"
    lead = Lease.of("n1", 3, text)
    led = Lease.of("n1", 4, text)
    assert (lead.slot, lead.leads) == (3, True)
    assert (led.slot, led.leads) == (4, False)
    assert lead.place == led.place == Place.of(text)
    for node, slot in (("n1", 5), ("n2", 3)):
        with pytest.raises(ValueError, match=f"slot {node}/{slot}: the lease of other slots"):
            Lease.of(node, slot, text)


@pytest.mark.parametrize(
    "text",
    [
        "a81f 1@17 p0 n1/0 inc=1 since=5",
        "a%20b 99@17.s-1.4 p12 n-1.x/3,4,9999 inc=999999999999999 gpu=1 since=7 "
        "since=1732161994123",
    ],
)
def test_the_text_of_a_place_reads_as_it_is_written(text: str):
    place = Place.of(text)
    assert place.text == text
    assert replace(place).text == text, "also if it is made of its fields"
    assert replace(place, task="other").text == f"other {text.partition(' ')[2]}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a81f 1@17 p0 n1/0 inc=1",
        "a81f 1@17 p0 n1/0 inc=1 since=5 ",
        "a81f 1@17 p0 n1/0 inc=1 since=5 started=6",
        "a81f 1@17 p0 n1/00 inc=1 since=5",
        "a81f 1@17 p0 n1/1,1 inc=1 since=5",
        "a81f 1@17 p0 n1/ inc=1 since=5",
        "a81f 1@17 p0 n1/1, inc=1 since=5",
        "a81f 1@17 p0 n1/0 inc=01 since=5",
        "a81f 1@17 p0 n1/0 inc=1 gpu since=5",
        "a81f 1@17 p0 n1/0 inc=1  gpu=1 since=5",
        "a81f 1@17 p0 n1/0 inc=1234567890123456 since=5",
        "a b 1@17 p0 n1/0 inc=1 since=5",
        "a81f 17 p0 n1/0 inc=1 since=5",
        "a81f 1@17 p0 n1/0 inc=1 since=\u0665",
    ],
)
def test_any_other_text_is_no_place(text: str):
    with pytest.raises(ValueError, match="not a place"):
        Place.of(text)


@pytest.mark.parametrize("line", ["", "up", "up inc=x drain=0 first=0 span=1 score=1 slots=1"])
def test_a_line_that_is_no_record_is_named(line: str):
    with pytest.raises(ValueError, match="node n1: not a node record"):
        Node.of("n1", line)
    with pytest.raises(ValueError, match="slot n1/0: not a lease"):
        Lease.of("n1", 0, line)
