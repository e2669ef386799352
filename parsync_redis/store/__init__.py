"""The shared state in Redis: connections, scripts, a function for each script, embedded servers."""

from .scripts.calls import Call
from .server.connection import connect
from .store import Store

__all__ = ["Call", "Store", "connect"]
