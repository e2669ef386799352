"""An app that knows nothing of parsync: the loader and the settings file place its tasks."""

import os
from typing import Any

from celery import Celery

app = Celery(
    "untouched",
    broker=os.environ.get("PLAIN_BROKER", "memory://"),
    backend=os.environ.get("PLAIN_BACKEND"),
)


@app.task(name="untouched.train", bind=True)
def train(self: Any, a: int) -> dict[str, Any]:
    """Return the node on which the task runs."""
    return {"a": a, "parsync": getattr(self.request, "parsync", None)}


if __name__ == "__main__":  # a client in a process of its own
    result = train.delay(7)
    print(result.get(timeout=180))
