"""The queue of the store in memory: the life of tasks. lua/verbs has each script's contract."""

from .ending import Ending
from .reading import Reading
from .records import Job, Task
from .running import Running
from .submitting import Submitting

__all__ = ["Job", "Queue", "Task"]


class Queue(Submitting, Running, Ending, Reading):
    """The tasks of a cluster, and the scripts on them."""
