"""A scheduler's part in the learnt run times: it reads those that decide where tasks go."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ...errors import DamagedState
from ...model.times import LearntTimes, field_of_class
from ...store.reads.times import read_times_of
from ...store.store import Store
from ..core.core import Core
from .guarded import unless_away

MAX_FIELDS: Final = 10_000
"""Maximum number of names and node classes whose run times are read: Redis keeps no more."""


class RunTimeReader:
    """The run times of some names and node classes, as they were at most a lease ago.

    learnt: the run times that were read.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        self.learnt = LearntTimes()
        self._known = set[str]()
        self._read_anew_s = 0.0

    def read(self, fields: Iterable[str], now_s: float) -> bool:
        """Read the fields that are not known yet; once in a lease read all of them.

        fields: the first MAX_FIELDS are read.
        Returns whether anything was read.
        """
        is_due = now_s >= self._read_anew_s
        missing = {*islice(fields, MAX_FIELDS)}
        if not is_due:
            missing -= self._known
        if not missing:
            return False
        learnt = read_times_of(self._store, sorted(missing))
        if is_due:
            self.learnt = LearntTimes()
            self._known = set()
            self._read_anew_s = now_s + self._lease_s
        self.learnt.update(learnt)
        self._known |= missing
        return True


class FastReader:
    """Gives the core the run times of the names whose tasks prefer fast nodes.

    Without such names nothing is read.
    """

    def __init__(self, store: Store, core: Core, lease_s: float) -> None:
        self._store = store
        self._run_times = core.view.run_times
        self._reader = RunTimeReader(store, lease_s)

    def work(self, now_s: float) -> None:
        """Read what the core has asked for, if it is not known or a lease old. now_s: monotonic."""
        run_times = self._run_times
        if not run_times.asked:
            return
        classes = run_times.classes
        names = [*run_times.asked][-max(1, MAX_FIELDS // max(1, len(classes))) :]
        fields = (field_of_class(name, node_class) for name in names for node_class in classes)
        with unless_away(self._store):
            try:
                is_read = self._reader.read(fields, now_s)
            except DamagedState:  # a key of another type: what was read stays
                return
            if is_read:
                run_times.set(self._reader.learnt)
