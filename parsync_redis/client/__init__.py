"""The Python clients, which submit tasks and ask for states without the tasks' Celery app.

async_client.py has the client for an event loop, which a program imports by itself.
"""

from .client import ParsyncClient

__all__ = ["ParsyncClient"]
