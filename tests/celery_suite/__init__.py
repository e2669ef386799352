"""Celery's own integration suite, on plain Celery and with every task placed: `.ci/celery-suite` runs it."""
