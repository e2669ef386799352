"""A process that gevent has patched: it submits, and one greenlet waits for a task while the others
go on.
"""

import subprocess
import sys

import pytest

from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import REPO
from tests.kit.reaper import marked
from tests.kit.waiting import PATIENCE_S

pytestmark = pytest.mark.one_server(-1)

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from celery import Celery
from parsync_redis import Parsync, ParsyncClient

url = sys.argv[1]
app = Celery("greened", broker=url, backend=url)
Parsync(app)

@app.task(name="greened.placed", parsync=True)
def placed(): pass

def error_of(result):
    try:
        return result.get(timeout=120)
    except Exception as error:
        return type(error).__name__

result = placed.apply_async(countdown=1000)
waiting = gevent.spawn(error_of, result)
gevent.sleep(0)
result.revoke()
print(waiting.get(timeout=120))

with ParsyncClient.from_url(url) as client:
    id = client.submit("greened.placed", countdown=1000)
    waiting = gevent.spawn(lambda: client.wait([id], timeout=120)[id].state.value)
    gevent.sleep(0)
    client.cancel(id)
    print(waiting.get(timeout=120))
"""


def test_a_greenlet_waits_for_a_task_while_another_one_cancels_it(server: EmbeddedServer) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url],
        env=marked(),
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.stdout.splitlines() == ["TaskRevokedError", "cancelled"], ran.stderr
