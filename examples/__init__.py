"""Celery apps that use parsync: tiles is what `docker compose up` runs."""
