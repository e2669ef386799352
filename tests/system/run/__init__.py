"""A placed task runs: as plain Celery has it, once, and its end is told."""
