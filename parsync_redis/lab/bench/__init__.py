"""Benches: what parsync costs next to plain Celery, measured on the same workers in the same run."""
