"""The Python clients: they submit tasks without the Celery app that defines them, and ask for their
state.

async_client.py has the one for an event loop; it is imported when it is used.
"""

from .client import ParsyncClient

__all__ = ["ParsyncClient"]
