"""The reference store: what the scripts do, in memory and in plain Python.

A property test (tests/store/model) compares the reference store with the scripts.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]
