"""Writes docs/celery.md from the table of cases."""

from itertools import groupby
from typing import Final

from tests.kit import REPO

from .case import POOLS, Case
from .cases import CASES

PAGE: Final = REPO / "docs" / "celery.md"

_HEAD: Final = """# parsync and Celery

<!-- Made by `python -m tests.parity` from tests/parity; do not edit. -->

A task that parsync places is an ordinary Celery task. It runs in a Celery worker, its result is in Celery's result
backend, and retries, chains, groups, chords, callbacks, signals and events are Celery's own. A task without `parsync=`
goes to the broker and does not need parsync's server. Two calls do ask that server, because they only have a name or
an id: `send_task` of a name that the process has not imported, and `revoke`.

The suite `tests/parity` compares this page with the code. It has {cases} cases. Each runs twice: on plain Celery, and
with `Parsync(app)`, a scheduler and a worker that is a node. The two answers must be the same, or the case must be in
the table of differences below, with the reason. If a difference disappears, the suite fails too. It runs with the pools
`prefork` and `threads` on Celery 5.7, and in a short form of {short} cases on Celery 5.4, 5.5 and 5.6.

Celery's own integration suite runs too, with every task placed and no change in its code. Each test that passes on
plain Celery passes placed, except for the tests of `tests/parity/celery_suite/differences.toml`. They need one of these:
`task_protocol = 1`, which a call of a placed task refuses with `InvalidInput`; a node on the transport `memory`, which
has no event loop ([your-own-app.md](your-own-app.md#brokers)); parts of a worker that are mocks.

## Differences in kind

**A task runs at least once; plain Celery's default is at most once.** Plain Celery acknowledges a message before the
task runs. If the worker or its process is killed, the task has failed or is forgotten. parsync gives such a task to
another node. It may therefore run twice, and its side effects may happen twice. `acks_late` does not change that.
For a task that must not run twice, set `parsync={{"max_starts": 1}}`: after one lost run it is *dead*, and its result
is a `WorkerLostError`. A task that ends its own process, by `sys.exit` or `os._exit`, has failed. It does not run
again.

**Priorities: larger runs first.** Without `parsync={{"priority": ...}}`, the `priority=` of a call or a task is
parsync's priority, 0 to 9. RabbitMQ reads it the same way. Celery over Redis reads it the other way round: there 0 runs
first. Reverse such priorities when you move a task to parsync.

**A task waits in parsync's queue, not in a worker.** A node gets no more tasks than it has slots. So there is no
prefetching: `worker_prefetch_multiplier` and `-O` have no effect on placed tasks, and a task with a countdown or an ETA
waits in Redis until it is due. A call returns when parsync's queue has the task, and a scheduler places it after that.
So `inspect.active` right after a call may not show the task yet.

**A node has the pool `prefork`, `threads` or `solo`.** With `-P gevent` or `-P eventlet`, a worker that was started
with a `--parsync-...` option says so and ends with code 2. Without such an option it runs plain tasks, as before. A
process that gevent or eventlet has patched may submit, wait and revoke: one greenlet waits while the others go on.

**A task with a `Strategy` of its own is not placed.** A batch task (celery-batches) keeps its requests and runs many of
them as one call, so nobody can tell when the run of one task ends. `parsync=` of such a task is refused at its
declaration, at its call, and when a node starts. Declared with `parsync=False`, or without `parsync=`, the task goes to
the broker, and runs in a node's worker as in any other.

**Declarations are checked at once.** `@app.task(parsync={{...}})` raises `InvalidInput` for what a worker would refuse
at its start, if `Parsync(app)` stands before it. Celery takes any option of a task or a call, and makes an attribute or
a property of it. So a misspelt `parsinc=` is warned of only.

**A retry can be refused.** If `retry(parsync={{...}})` asks for more than any node has, or for an option that does not
exist, the task fails with `Infeasible` or `InvalidInput`. When plain Celery cannot publish a retry, it rejects the
message and stores nothing, and `get()` waits for ever. A refused callback or step of a chain fails the task before it.

**A retry in doubt is no failure.** If the server does not answer a retry for 5 seconds, nobody knows whether it has the
retry. The run ends as after `Reject(requeue=True)`: the retry runs if the server has it, and otherwise the same run is
repeated, with the same number of retries. So it is if the server takes no writes or is full. A `replace` that the
server does not answer is treated in the same way.

**An id that waits is one task.** While a task waits for its first run, another `apply_async` with the same `task_id`
is the same task. While it runs, or after it has ended, it runs once more, as in plain Celery.

**A call retries for 5 seconds.** While the server is down, `apply_async` retries for 5 seconds and then raises
`ServerUnreachable`, which is also kombu's `OperationalError`. `retry=False` means one try, and a `retry_policy` that
differs from Celery's default applies.

**A name alone does not say where a task goes.** For a name that the process has not imported, `send_task` asks the
server whether parsync places that task. The answer is valid for 3 seconds, and for as long as the server is down. If
the server is down and has never answered for that name, `send_task` raises `OperationalError` at once: sending the task
to the wrong place would be worse. `parsync=False` sends it to the broker. `revoke` tells the workers in any case, and
then raises `OperationalError` if parsync's queue did not answer.

**A tenant travels with what a task submits.** A message of a task that has a [tenant](options.md#tenants-and-limits) has
the header `parsync_tenant`, also a message to the broker. So the steps of a chain, the tasks of a group, the body of a
chord, callbacks, errbacks and what a task submits by `delay` or `send_task` inherit the tenant. Limits are not inherited.
A retry keeps the tenant and the limits.

**A router that needs arguments works only in calls that have them.** Workers register the queue of each task, for
submits by name with `ParsyncClient` or `parsync submit`. If the app's router fails without arguments, or the queue is
not declared and `task_create_missing_queues` is off, the worker warns once, and such a submit has no queue.

**Each worker has its own rate limit, and tasks hold no slot while they wait for it.** A task that may not start yet
goes back to parsync's queue until its token is due. A worker that was busy for a moment makes up for 0.1 s at most.

**parsync's connection is the broker's, as far as text can say it.** If the address comes from the app's broker, placed
tasks use the same TLS, login, time-outs, keepalives and client name as plain ones
([your-own-app.md](your-own-app.md#the-brokers-connection)). Credential providers, and `broker_use_ssl=True`, with which
Celery speaks no TLS to Redis, are refused.

**`celery purge` empties the broker's queues only.** The command goes straight to the broker's channel and does not
call the app, so parsync does not see it. To cancel tasks that wait in parsync as well, use `app.control.purge()` or
`parsync cancel --state waiting`.

**A placed task has no message on the broker.** When the broker's connection is lost, Celery cancels no placed task,
whatever `acks_late` and `worker_cancel_long_running_tasks_on_connection_loss` say. `worker_soft_shutdown_timeout`
applies to placed tasks too.

**A result that cannot be stored fails the task.** A run waits for 20 seconds for a result backend in Redis that
refuses, for example because its disk is full. Then the task has failed, with that reason, and `get()` raises it when
the backend takes results again. Plain Celery stores nothing, and `get()` waits for ever.

**`sys.exit()` does not end the pool's process.** The task has failed, as in plain Celery. The process continues with
the next task.

## Known differences

| what | case | pools | why |
|---|---|---|---|
"""


_SAME: Final = """
## The same as in Celery

A line names the part of Celery that its cases use, and behind the colon what each case compares.
"""


def page() -> str:
    """Render the whole page."""
    differ = [case for case in CASES if case.differs]
    lines = [_HEAD.format(cases=len(CASES), short=sum(case.short for case in CASES))]
    lines += [_row(case) for case in differ]
    lines.append(_SAME)
    for area, cases in groupby(
        sorted(CASES, key=lambda case: case.area), key=lambda case: case.area
    ):
        same = [
            case for case in cases if not (case.differs and {*case.pools} <= {*case.differs_on})
        ]
        lines.append(f"\n### {area}\n\n{len(same)} cases.\n\n")
        for calls, some in groupby(same, key=lambda case: case.calls):
            lines.append(f"- `{calls}`: {'; '.join(case.shows for case in some)}\n")
    return "".join(lines)


def _row(case: Case) -> str:
    pools = [pool for pool in POOLS if pool in case.pools and pool in case.differs_on]
    shows = f"{case.calls}: {case.shows}".replace("|", "\\|")
    return f"| {case.area} | {shows} | {', '.join(pools)} | {case.differs} |\n"
