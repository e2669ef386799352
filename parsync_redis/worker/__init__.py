"""Celery on the executing side: the agent that makes a worker a node."""
