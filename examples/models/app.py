"""A Celery app that serves models: each task names its model, and prefers where it is loaded.

parsync dev -A examples.models.app
parsync submit models.answer '"llama"' '"why?"' --wait
"""

import os
import time
from typing import Final, TypedDict

from celery import Celery

from parsync_redis.integration.app import Parsync

from .loaded import MODELS_KEPT, LoadedModels, load_model

ANSWER_TASK: Final = "models.answer"
ANSWER_S: Final = 0.2

LOADED: Final = LoadedModels(MODELS_KEPT, load_model)
"""The models of this worker. Its pool has threads, so all its tasks share them."""


class Answer(TypedDict):
    """An answer, and whether its model had to be loaded first."""

    text: str
    cold: bool


def make_app(url: str, cluster: str | None = None) -> Celery:
    """Make the app on the server at `url`; without `cluster`, PARSYNC_CLUSTER names it."""
    app = Celery("parsync_models", broker=url, backend=url, set_as_current=False)
    app.conf.update(result_expires=3600, broker_connection_retry_on_startup=True)
    Parsync(app, url, cluster)

    @app.task(name=ANSWER_TASK, shared=False, parsync={"prefer": ["warm:{model}"]})
    def answer(model: str, question: str) -> Answer:
        """Answer a question with a model."""
        weights, is_cold = LOADED.get(model)
        time.sleep(ANSWER_S)
        return Answer(text=f"{question} {weights[: len(model)].decode()}", cold=is_cold)

    return app


app = make_app(os.environ.get("PARSYNC_URL", "redis://127.0.0.1:6379/0"))
