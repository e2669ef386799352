"""The parity suite: each case runs on plain Celery and with `Parsync(app)`, and the answers must be
the same.
"""
