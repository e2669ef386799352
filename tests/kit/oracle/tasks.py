"""The audit of the tasks: each task is in the keys of its state only.

The audit is pure: it judges records that were read before.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from parsync_redis.inspect.audit import RareFields, judge_rare_fields
from parsync_redis.model.node import Node
from parsync_redis.model.record import TaskLine, place_text, read_run
from parsync_redis.model.task import FINAL

_ENDED_ENTRY: Final = re.compile(
    rf"(?:{'|'.join(FINAL)}) \d{{1,15}}\n([^\n]*)\n[^\n]*\n.*", re.DOTALL
)
_ATTEMPT: Final = re.compile(r"(\d{1,9})@(\d{1,15})(?:\..*)?")


@dataclass(frozen=True, slots=True)
class QueueState:
    """The tasks of a shard as they were read.

    silent: tasks without a message.
    messages: the number of messages.
    queues: kind -> task -> order.
    ended: the ended tasks, a table per generation.
    nodes: all nodes by name.
    leases: the texts of all leases.
    submitted: the number of submissions.
    """

    tasks: Mapping[str, str]
    silent: Sequence[str]
    messages: int
    taken: Mapping[str, str]
    running: Mapping[str, str]
    queues: Mapping[str, Mapping[str, float]]
    later: Mapping[str, float]
    dead: Mapping[str, float]
    ended: Sequence[Mapping[str, str]]
    extras: Mapping[str, RareFields]
    nodes: Mapping[str, Node]
    leases: Set[str]
    submitted: int


def audit_tasks(state: QueueState) -> Iterator[str]:
    """Yield a sentence for each fault of the tasks."""
    lines: dict[str, TaskLine] = {}
    for id, text in state.tasks.items():
        try:
            lines[id] = TaskLine.of(text)
        except ValueError as error:
            yield f"task {id}: {error}"
    yield from _indexes(state)
    yield from (f"task {id} has no message" for id in state.silent)
    if state.messages != len(state.tasks) - len(state.silent):
        with_message = len(state.tasks) - len(state.silent)
        yield f"there are {state.messages} messages, of {with_message} tasks"
    yield from _waiting(state, lines)
    yield from _attempts(state, lines)
    yield from _ended(state)
    yield from _rare_fields(state)


def _indexes(state: QueueState) -> Iterator[str]:
    """Check that each task is in one index, and that each entry of an index has a task."""
    indexes: list[tuple[str, Mapping[str, object]]] = [
        *(("pending", queue) for queue in state.queues.values()),
        ("later", state.later),
        ("taken", state.taken),
        ("running", state.running),
        ("dead", state.dead),
    ]
    for index, ids in indexes:
        yield from (
            f"task {id} is in {index}, but has no line" for id in ids if id not in state.tasks
        )
    lists: dict[str, list[str]] = {}
    for index, ids in indexes:
        for id in ids:
            lists.setdefault(id, []).append(index)
    for id in state.tasks:
        if len(names := lists.get(id, [])) != 1:
            yield f"task {id} has not ended, but is in {' and '.join(names) or 'no index'}"


def _waiting(state: QueueState, lines: Mapping[str, TaskLine]) -> Iterator[str]:
    """Check that a waiting task is in the queue of its line's kind, at its line's order."""
    for kind, queue in state.queues.items():
        for id, order in queue.items():
            line = lines.get(id)
            if line is not None and line.kind != kind:
                yield f"task {id} waits as {kind}, its line says {line.kind}"
            if line is not None and line.order != order:
                yield f"task {id} waits at {order:.0f}, its order is {line.order}"


def _attempts(state: QueueState, lines: Mapping[str, TaskLine]) -> Iterator[str]:
    """Check that each attempt was given out, and that each place has its lease."""
    attempts = dict(state.taken)
    for id, text in state.running.items():
        place, _ = read_run(text)
        if place is None or place.task != id:
            yield f"task {id} runs at no place: {text!r:.200}"
            continue
        attempts[id] = place.attempt
        if place.node in state.nodes and place_text(text) not in state.leases:
            yield f"task {id} has no lease at its place: {text!r:.200}"
    for id, line in lines.items():
        match = _ATTEMPT.fullmatch(attempts.get(id, f"{line.takes + 1}@{line.life}"))
        was_given_out = match is not None and (int(match[1]), int(match[2])) == (
            line.takes + 1,
            line.life,
        )
        if not was_given_out or not 1 <= line.life <= state.submitted:
            attempt = attempts.get(id, f"{line.takes}@{line.life}")
            yield (
                f"task {id} has an attempt that was never given out: {attempt!r} of "
                f"{state.submitted} submissions"
            )


def _ended(state: QueueState) -> Iterator[str]:
    """Check that an ended task has one readable entry, and is in no other index."""
    ended_ids: set[str] = set()
    for generation in state.ended:
        for id, text in generation.items():
            if id in state.tasks:
                yield f"task {id} has ended, and has not ended"
            if id in ended_ids:
                yield f"task {id} has ended twice"
            ended_ids.add(id)
            if not _ENDED_ENTRY.fullmatch(text):
                yield f"task {id} has ended in no state that there is: {text!r:.200}"


def _rare_fields(state: QueueState) -> Iterator[str]:
    """Check that the line of a task with rare fields has the mark '+'.

    No rare field of a run may outlive the run.
    """
    ended = {
        id: match[1]
        for generation in state.ended
        for id, text in generation.items()
        if (match := _ENDED_ENTRY.fullmatch(text))
    }
    for id, extra in state.extras.items():
        yield from judge_rare_fields(
            id,
            extra,
            has_ended=id not in state.tasks,
            marked=state.tasks.get(id) or ended.get(id, "+"),
            is_running=id in state.running,
            is_dead=id in state.dead,
        )
