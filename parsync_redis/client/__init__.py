"""The Python client: submits tasks without the Celery app that defines them, and asks for their state."""

from .client import ParsyncClient

__all__ = ["ParsyncClient"]
