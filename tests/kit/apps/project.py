"""An app of a user's, as a file: its one task sleeps, and then waits until its gate is open, if it
has one.
"""

from typing import Final

PROJ: Final = """
import os, time
from celery import Celery
from parsync_redis import Parsync

url = os.environ["PARSYNC_URL"]
app = Celery("proj", broker=url, backend=url)
Parsync(app)


@app.task(name="proj.render", parsync={})
def render(seconds, gate=""):
    time.sleep(seconds)
    while gate and not app.backend.client.exists(gate):
        time.sleep(0.02)
"""
