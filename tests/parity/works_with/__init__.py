"""Libraries that people use beside Celery, each with a placed task: docs/works-with.md has what
works.

Most are not in the lock: `.ci/works-with` installs those of requirements.txt in build/works-with. A
test whose library is missing is skipped, and says so.
"""

from importlib.util import find_spec
from typing import Final

LIBRARIES: Final = {
    "django": "Django",
    "django_celery_beat": "django-celery-beat",
    "django_celery_results": "django-celery-results",
    "redbeat": "celery-redbeat",
    "gunicorn": "gunicorn",
    "sentry_sdk": "sentry-sdk",
    "celery_once": "celery-once",
    "celery_singleton": "celery-singleton",
    "celery_batches": "celery-batches",
    "gevent": "gevent",
    "eventlet": "eventlet",
}
"""The package of each library that is not in the lock, and the name under which it is installed."""


def is_installed(package: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    return find_spec(package) is not None


def missing() -> list[str]:
    """Return the libraries that are not installed here."""
    return [name for package, name in LIBRARIES.items() if not is_installed(package)]
