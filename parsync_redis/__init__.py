"""parsync-redis places Celery tasks on the slots that suit them best, with its state in Redis.

from parsync_redis import Parsync
Parsync(app)

from parsync_redis import ParsyncClient
client = ParsyncClient.from_url("redis://localhost:6379/0", cluster="demo")
client.submit("proj.render", [7], slots=2)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .model.printable import guard_logs

if TYPE_CHECKING:
    from .client import ParsyncClient
    from .client.async_client import AsyncParsyncClient
    from .errors import (
        AccessDenied,
        BrokenContract,
        ClusterMismatch,
        DamagedState,
        Infeasible,
        InvalidInput,
        ParsyncError,
        ServerFull,
        ServerReadOnly,
        ServerUnfit,
        ServerUnreachable,
        UnknownLimit,
        UnknownTask,
    )
    from .integration.app import Parsync
    from .model.events import Event
    from .model.node import NodeState
    from .model.status import TaskStatus
    from .model.task import TaskState
    from .model.views import KindView, NameView, NodeView, PartitionView
    from .settings import Settings

guard_logs()

__all__ = [
    "AccessDenied",
    "AsyncParsyncClient",
    "BrokenContract",
    "ClusterMismatch",
    "DamagedState",
    "Event",
    "Infeasible",
    "InvalidInput",
    "KindView",
    "NameView",
    "NodeState",
    "NodeView",
    "Parsync",
    "ParsyncClient",
    "ParsyncError",
    "PartitionView",
    "ServerFull",
    "ServerReadOnly",
    "ServerUnfit",
    "ServerUnreachable",
    "Settings",
    "TaskState",
    "TaskStatus",
    "UnknownLimit",
    "UnknownTask",
]
__version__ = "0.1.0"

_MODULE_OF_NAME = {
    "AsyncParsyncClient": "client.async_client",
    "Event": "model.events",
    "KindView": "model.views",
    "NameView": "model.views",
    "NodeState": "model.node",
    "NodeView": "model.views",
    "Parsync": "integration.app",
    "ParsyncClient": "client",
    "PartitionView": "model.views",
    "Settings": "settings",
    "TaskState": "model.task",
    "TaskStatus": "model.status",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: a scheduler needs no Celery, a client no numpy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(
        import_module(f".{_MODULE_OF_NAME.get(name, 'errors')}", __name__), name
    )
    return value
