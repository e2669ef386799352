"""A scheduler of a simulation."""

from dataclasses import dataclass, field

from parsync_redis.scheduler.core.core import Core


@dataclass(slots=True)
class SimScheduler:
    """A core with its group's number, its remaining decisions, and its reads in this tick."""

    core: Core
    group: int
    budget: float = 0.0
    read: list[int] = field(default_factory=list)
    read_bytes: int = 0
