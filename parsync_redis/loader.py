"""A Celery loader that applies parsync to an app whose code is not to be changed.

    CELERY_LOADER=parsync_redis.loader:Loader

Set it for each process that calls tasks, and for the workers. The rules [place] of the settings file (parsync.toml) say
which tasks are placed. PARSYNC_NODE and its like make a worker a node: see the README.
"""

from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader

from .integration.app import Parsync


class Loader(AppLoader):  # type: ignore[misc]
    """Celery's default loader, which gives its app a Parsync, unless it has one.

    An app makes its loader when something first reads its settings. If it calls Parsync(app, ...) after that, that one
    counts.
    """

    def __init__(self, app: Celery, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        if getattr(app, "parsync", None) is None:
            Parsync(app).of_loader = True
