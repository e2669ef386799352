"""Celery apps that use parsync. `docker compose up` runs tiles, `make demo` runs demo."""
