"""Ways in which a task ends its process, and what happens when a process is lost."""

from typing import Any

from ..case import MOMENT_S, Context, area

case = area("Ends of a process")
HANGS = (
    "with the pool `threads`, plain Celery never stores a result; with parsync the task has failed"
)
LOST = (
    "at least once: a process that a signal killed is lost, and the task runs again, at most "
    "`max_starts` times; "
    "with `parsync={'max_starts': 1}` it has failed, as in plain Celery"
)


def ended(how: str) -> Any:
    """Return a case of that end: the result, and how often it ran."""

    def run(c: Context) -> Any:
        result = c.t.ends.delay(c.key, how)
        return c.end(result, MOMENT_S if (c.kind, c.pool) == ("plain", "threads") else c.s), len(
            c.marks()
        )

    return run


for how in (
    "sys.exit",
    "sys.exit()",
    "sys.exit(text)",
    "KeyboardInterrupt",
    "CancelledError",
    "GeneratorExit",
):
    case(
        how,
        "a failure, after one run",
        ended(how),
        differs=HANGS,
        differs_on=("threads",),
        short=how == "sys.exit",
    )
case("os._exit", "a failure, after one run", ended("os._exit"), pools=("prefork",), short=True)
for how in ("SIGKILL", "SIGTERM", "SIGSEGV"):
    case(
        f"killed by {how}", "what becomes of the task", ended(how), pools=("prefork",), differs=LOST
    )


@case("acks_late, reject_on_worker_lost", "killed once: it runs again", pools=("prefork",))
def _(c: Context) -> Any:
    return c.end(c.t.lost_late.delay(c.key, "SIGKILL")), c.marks()


@case("acks_late, reject_on_worker_lost", "sys.exit once: it runs again", pools=("prefork",))
def _(c: Context) -> Any:
    return c.end(c.t.lost_late.delay(c.key, "sys.exit")), c.marks()


for ends, shows in (
    (1, "ends its process once: it is retried"),
    (9, "as often as it may: it has failed"),
):
    case(
        "retry_on_worker_lost",
        shows,
        lambda c, ends=ends: [c.end(c.t.lost_retries.delay(c.key, ends)), len(c.marks())],
        pools=("prefork",),
        since=(5, 7),
    )
