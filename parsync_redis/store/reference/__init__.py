"""The store in memory: what the scripts do, in plain Python.

A property test (tests/model) holds it to the scripts.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]
