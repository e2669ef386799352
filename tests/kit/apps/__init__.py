"""Celery apps whose tasks leave marks, for the workers of tests."""
