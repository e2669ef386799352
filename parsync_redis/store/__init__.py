"""The shared state in Redis: scripts, one typed function a script, the connection, an embedded
server.
"""

from .scripts.calls import Call
from .server.connection import connect
from .store import Store

__all__ = ["Call", "Store", "connect"]
