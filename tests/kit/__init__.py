"""Shared parts of tests: rigs, apps, programs, waits, readers of pages. No file here is a test."""

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]
REPO: Final = TESTS.parent
"""The root of the checkout."""
