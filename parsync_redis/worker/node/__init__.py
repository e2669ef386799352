"""A node: its lease, its runs, its seats and its devices. Nothing here knows Celery."""
