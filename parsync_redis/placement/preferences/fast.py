"""The preference for nodes where tasks of a name run fast, by the learnt run times."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...model.needs import Resources
from ..strategy import Ints
from .preference import ClusterNow, Lasts, NodesNow, Preference

TIMES_AS_LONG: Final = (1.1, 1.5, 2.5, 5.0)
"""The run times that part the buckets, in run times of the fastest class."""
UNKNOWN_TIMES: Final = 2.0
"""A class whose run times are not known counts as this many times as long as the fastest class.

That is in the middle bucket. So the class is tried before classes that are known to be slow.
"""


class FastPreference(Preference):
    """Prefers nodes of the classes on which tasks of a name run shortest."""

    name = "fast"
    lasts = Lasts.FREE
    reads_needs = True

    def __init__(self, task: str) -> None:
        """task: the name of the tasks; for '' no run time is known."""
        self._task = task

    @property
    def key(self) -> str:
        """Return the rule with the name of the tasks."""
        return f"{type(self).__name__} {self._task}"

    def state(self, cluster: ClusterNow) -> float:
        """Return the run time (ms) on the fastest class; 0 if nothing can be compared."""
        return min(cluster.run_ms(self._task).values(), default=0.0)

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the bucket of the run time on each node's class, beside the fastest open class."""
        run_ms = nodes.cluster.run_ms(self._task)
        classes = nodes.columns.classes
        times_as_long = [times_of(run_ms, node_class) for node_class in classes.values]
        buckets = [bisect_right(TIMES_AS_LONG, times) for times in times_as_long]
        return np.array(buckets, dtype=np.int64)[classes.codes]

    def sentence(self, bucket: int) -> str:
        """Say how long tasks run there, beside the fastest class."""
        if not bucket:
            return f"less than {TIMES_AS_LONG[0]:g} times the run time of the fastest class"
        low = TIMES_AS_LONG[bucket - 1]
        if bucket == len(TIMES_AS_LONG):
            return f"{low:g} times the run time of the fastest class, or more"
        doubt = ", or not known yet" if bucket == _UNKNOWN_BUCKET else ""
        return (
            f"{low:g} to {TIMES_AS_LONG[bucket]:g} times the run time of the fastest class{doubt}"
        )


_UNKNOWN_BUCKET: Final = bisect_right(TIMES_AS_LONG, UNKNOWN_TIMES)


def times_of(run_ms: Mapping[str, float], node_class: str) -> float:
    """Return how many times as long as on the fastest class tasks run on nodes of a class.

    run_ms: the mean run times (ms) of the known classes of open nodes.
    """
    ms = run_ms.get(node_class)
    return UNKNOWN_TIMES if ms is None else ms / min(run_ms.values())
