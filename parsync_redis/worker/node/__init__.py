"""A node: its lease, runs, seats and devices. No module here imports Celery (`ROOMS`)."""
