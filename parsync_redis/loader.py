"""A Celery loader that applies parsync to an app whose code stays as it is.

    CELERY_LOADER=parsync_redis.loader:Loader

Set the variable for each process that calls tasks, and for the workers. The rules [place] of the
settings file (parsync.toml) name the tasks that are placed. PARSYNC_NODE and similar variables make
a worker a node: see docs/options.md.
"""

from celery import Celery
from celery.loaders.app import AppLoader

from .integration.app import Parsync


class Loader(AppLoader):  # type: ignore[misc]
    """Celery's default loader, which gives its app a Parsync unless the app has one.

    An app makes its loader when its settings are first read. A Parsync(app, ...) that the app's
    code makes later replaces the loader's Parsync.
    """

    def __init__(self, app: Celery, **kwargs: object) -> None:
        super().__init__(app, **kwargs)
        if getattr(app, "parsync", None) is None:
            Parsync(app).of_loader = True
