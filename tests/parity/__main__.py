"""Writes docs/celery.md from the table of cases: `python -m tests.parity`."""

from .page import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
