"""An app of a user's, as a file: its one task sleeps."""

from typing import Final

PROJ: Final = """
import os, time
from celery import Celery
from parsync_redis import Parsync

url = os.environ["PARSYNC_URL"]
app = Celery("proj", broker=url, backend=url)
Parsync(app)


@app.task(name="proj.render", parsync={})
def render(seconds):
    time.sleep(seconds)
"""
