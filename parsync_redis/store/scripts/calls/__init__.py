"""Functions that make calls of scripts, and read their replies. Nothing here does I/O.

A call is run by `Store.run` or, many in one round trip, by `Store.run_all`. Text in replies is
UTF-8; the bitmap stays bytes. A family of scripts has a module: queue, tasks, partition, cluster,
repair.
"""

from typing import Final

from ..scripts import Script
from . import cluster, partition, queue, repair, tasks
from .base import Call, join_parts, parts_of

__all__ = ["ALL", "Call", "Commands", "join_parts", "parts_of"]

ALL: Final[tuple[Script, ...]] = (*queue.ALL, *tasks.ALL, *partition.ALL, *cluster.ALL, *repair.ALL)


class Commands(
    queue.QueueCalls,
    tasks.TaskCalls,
    partition.PartitionCalls,
    cluster.ClusterCalls,
    repair.RepairCalls,
):
    """All scripts of one cluster as functions that make calls."""
