"""Celery: how tasks get into parsync, and how a worker becomes a node."""
