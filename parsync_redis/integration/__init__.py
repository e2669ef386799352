"""Celery on the submitting side: `Parsync(app)`, and how what Celery publishes is submitted."""
