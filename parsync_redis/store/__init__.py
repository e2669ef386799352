"""The shared state in Redis: scripts, one typed function a script, the connection, an embedded server."""

from .calls import Call
from .store import Store, connect

__all__ = ["Call", "Store", "connect"]
