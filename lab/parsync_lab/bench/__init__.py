"""Benches: the cost and the rate of placement, compared with rivals and with plain Celery."""
