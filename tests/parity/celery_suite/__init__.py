"""Celery's own integration suite, on plain Celery and with every task placed: `make celery-suite`
runs it.
"""
