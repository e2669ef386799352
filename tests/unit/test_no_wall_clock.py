"""Promise 8, F23: no process reads its machine's wall clock, so that no jump of it can decide
anything.
"""

import re

from tests.kit import REPO

READS = re.compile(
    r"\btime\.(?:time|time_ns|localtime|gmtime|ctime)\(|\b(?:datetime|date)\.(?:now|utcnow|today)\("
)
ALLOWED = {
    # what a task's caller gave as a time of day, as Celery does: eta, expires
    "parsync_redis/wire/message_options.py",
    "parsync_redis/integration/publish.py",  # as in the line above
    # whether an eta that a caller gave is still to come
    "parsync_redis/worker/celery/inspect_answers.py",
    "parsync_lab/bench/app.py",  # a delay that is measured from one process to another
    "parsync_lab/bench/celery.py",  # a name for a key
}
"""Files, from the package on."""


def test_no_module_reads_the_time_of_day():
    files = [*REPO.glob("parsync_redis/**/*.py"), *REPO.glob("lab/parsync_lab/**/*.py")]
    names = {
        str(file.relative_to(REPO)).removeprefix("lab/")
        for file in files
        if READS.search(file.read_text())
    }
    assert names <= ALLOWED


def test_the_pattern_finds_code_that_reads_the_wall_clock():
    for text in ("now = time.time()", "datetime.now(UTC)", "time.time_ns()"):
        assert READS.search(text)
    for text in ("time.monotonic()", "runtime.time_s", "datetime.fromtimestamp(0)"):
        assert not READS.search(text)
