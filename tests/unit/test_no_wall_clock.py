"""Promise 8, F23: no process reads its machine's wall clock, so that no jump of it can decide
anything.
"""

import re
from pathlib import Path

import parsync_redis

READS = re.compile(
    r"\btime\.(?:time|time_ns|localtime|gmtime|ctime)\(|\b(?:datetime|date)\.(?:now|utcnow|today)\("
)
ALLOWED = {
    # what a task's caller gave as a time of day, as Celery does: eta, expires
    "wire/message_options.py",
    "integration/publish.py",  # the same
    "worker/celery/inspect_answers.py",  # whether an eta that a caller gave is still to come
    "lab/bench/app.py",  # a delay that is measured from one process to another
    "lab/bench/celery.py",  # a name for a key
}


def test_no_module_reads_the_time_of_day():
    folder = Path(parsync_redis.__file__).parent
    readers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if READS.search(path.read_text())
    }
    assert readers <= ALLOWED


def test_the_pattern_finds_what_reads_it():
    for text in ("now = time.time()", "datetime.now(UTC)", "time.time_ns()"):
        assert READS.search(text)
    for text in ("time.monotonic()", "runtime.time_s", "datetime.fromtimestamp(0)"):
        assert not READS.search(text)
