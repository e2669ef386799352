"""Functions that make calls of scripts and read their replies, without I/O.

`Store.run` runs a call, and `Store.run_all` runs many calls in one round trip. Text in replies is
UTF-8; the bitmap stays bytes. Each family of scripts has a module: queue, tasks, accounts,
partition, cluster, repair.
"""

from typing import Final

from ..scripts import Script
from . import accounts, cluster, partition, queue, repair, tasks
from .base import Call, join_parts, parts_of

__all__ = ["ALL_SCRIPTS", "Call", "Commands", "join_parts", "parts_of"]

ALL_SCRIPTS: Final[tuple[Script, ...]] = (
    *queue.QUEUE_SCRIPTS,
    *tasks.TASK_SCRIPTS,
    *accounts.ACCOUNT_SCRIPTS,
    *partition.PARTITION_SCRIPTS,
    *cluster.CLUSTER_SCRIPTS,
    *repair.REPAIR_SCRIPTS,
)


class Commands(
    queue.QueueCalls,
    tasks.TaskCalls,
    accounts.AccountCalls,
    partition.PartitionCalls,
    cluster.ClusterCalls,
    repair.RepairCalls,
):
    """A function for each script of one cluster; the function makes a call."""
