"""The agent: parsync's part inside a Celery worker. It registers the node, renews its lease, answers doorbells, and
brings outcomes home.

Four hands, each with its connection: the worker's event loop answers doorbells (`answer`); a thread brings outcomes
home (reporter.py); a thread renews the lease, and does nothing that could keep it from that; a thread tends: compares
what the node holds with what it runs, ends what was cancelled, announces verdicts. The table of runs (runs.py) is what
they share. What keeps a run to its slots and to the lease on this machine are the isolation (isolation.py).
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from signal import Signals
from typing import Any

from redis.exceptions import RedisError

from ..errors import ParsyncError, ServerUnreachable
from ..model.apps import TASKS_LABEL, KnownTasks, offer_with
from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.needs import Resources
from ..model.node import STANDS_STILL, Lease
from ..model.place import Place
from ..settings import Settings
from ..store.cluster import ClusterConfig, join_cluster
from ..store.repair import repair_partition
from ..store.server_errors import Backoff, is_damage
from ..store.store import Store
from ..wire.doorbell import Doorbell
from .isolation.machine import Isolation, now_s
from .reporter import Reporter
from .results import announce
from .runs import Key, Run, Runs

log = logging.getLogger("parsync.agent")

BEFORE_CLUSTER_S = 1.0
"""How often a node asks whether its cluster exists by now."""
BEAT_S = 0.2
"""How often the event loop says that it turns."""
SAY_S = 3.0
"""How often a node says what it waits for before it is up."""


@dataclass(slots=True)
class NodeSpec:
    """What a worker offers as a node."""

    name: str
    offer: Resources
    score: float
    tasks: KnownTasks | None = None

    def know(self, tasks: KnownTasks, queues: Iterable[str]) -> None:
        """Adds to the offer what its worker knows: the tasks of its app, and the queues that it consumes."""
        self.tasks, self.offer = tasks, offer_with(self.offer, tasks, queues)


class Agent:
    """The agent of one worker process. The worker's steps set what is theirs to do: the functions below `leaving`."""

    def __init__(self, app: Any, settings: Settings, spec: NodeSpec, isolation: Isolation | None = None) -> None:
        self.app, self.settings, self.spec = app, settings, spec
        self.isolation = isolation or Isolation()
        self.store = Store.from_url(settings.url, settings.cluster, settings.retention_s, settings.max_starts)
        self.partition, self.inc = -1, 0
        self.leaving = False
        self.on_registered: Callable[[], None] = lambda: None
        self.on_superseded: Callable[[], None] = lambda: None
        self.on_unfit: Callable[[], None] = lambda: None
        self.at_work: Callable[[], bool] = lambda: False
        self.end_run: Callable[[Any, str], None] = lambda request, signal: None
        self.drop_run: Callable[[Any], None] = lambda request: None
        self.send_event: Callable[..., Any] | None = None
        self.runs = Runs()
        self._seen: set[Key] = set()
        self._moved = 0
        self._lease_s, self._pause_s = 5 * BEFORE_CLUSTER_S, BEFORE_CLUSTER_S
        self._said_leaving = False
        self._hindrances: set[str] = set()
        self._turned_s, self._began_s = 0.0, time.monotonic()
        self._deaf = ""
        self._stop = threading.Event()
        self._poke = threading.Event()
        self._home = Reporter(self.store, self.runs, self.isolation)
        self._renewer = threading.Thread(target=self._renewing, name="parsync-renew", daemon=True)
        self._tender = threading.Thread(target=self._tending, name="parsync-tend", daemon=True)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the threads; the node registers as soon as the cluster is set up."""
        for thread in (self._home, self._renewer, self._tender):
            thread.start()

    def leave(self) -> None:
        """The worker shuts down: no new claims; what has not started is placed elsewhere. Safe in a signal handler."""
        if not self.leaving:  # once only: a second signal could find this very thread inside `set`
            self.leaving = True
            self._poke.set()

    def stop(self) -> None:
        """After the pool has ended: brings the last outcomes home, gives every lease back, marks the node down."""
        self.leave()
        if self._stop.is_set():
            return
        self._stop.set()
        self._poke.set()
        if not self._renewer.is_alive():
            return
        self._home.close()
        for thread in (self._home, self._renewer, self._tender):
            thread.join(timeout=10)
        try:
            self._depart()
        except (ParsyncError, RedisError, OSError) as error:
            log.warning("node %s could not leave in order: %s", self.spec.name, error)

    def _depart(self) -> None:
        if self.inc:
            self._give_back(self.store, self._leases(self.store), "its worker stopped")
            self.store.run(self.store.commands.reclaim(self.partition, self.spec.name, self.inc, self._moved))
            log.info("node %s has left", self.spec.name)

    def another_store(self) -> Store:
        """The same state over connections that find out in time, for the lease, that a server is gone."""
        store = self.store.again()
        _hurry(store, self._lease_s)
        return store

    def turned(self) -> None:
        """The worker's event loop turns: it says so every BEAT_S."""
        self._turned_s = time.monotonic()

    # -- doorbells: the worker's event loop ----------------------------------------------------------------------------

    def answer(self, bells: Iterable[Doorbell]) -> list[tuple[Run, bytes]]:
        """Doorbells rang: asks to start; the runs, with their messages, of which there is anything to run (again)."""
        bells = list(bells)
        entered = [self._entered(bell) for bell in bells]
        runs = [run for run in entered if run]
        if runs and self._hinders(frozenset[int]().union(*(run.slots for run in runs))):
            hindered = [run for run in runs if self._hinders(run.slots)]
            self.runs.drop(hindered)
            runs = [run for run in runs if run not in hindered]
        if not runs:
            return []
        try:
            answers = self.store.run(self.store.commands.start([run.place for run in runs]))
        except (ParsyncError, RedisError, OSError) as error:
            tasks = ", ".join(run.place.task for run in runs)
            log.warning("task %s could not ask to start: %s; its doorbell will ring again", tasks, error)
            self.runs.drop(runs)
            return []
        found, refused = [], False
        for run, (word, message) in zip(runs, answers, strict=True):
            if word == "refused":
                log.info("task %s attempt %s may not start (%s)", run.place.task, run.place.attempt, readable(message))
                self.ended(run, "refused")
                refused = True
            else:
                found.append((run, message))
        if refused:  # who was refused kept those behind it from its slots
            found += self.answer([bell for bell, run in zip(bells, entered, strict=True) if not run])
        return found

    def _entered(self, bell: Doorbell) -> Run | None:
        """The run of a doorbell, in the table; None if it is not to be: it is there, or the node is not what it was."""
        place = Place(bell.task, bell.attempt, self.partition, self.spec.name, bell.slots[0], bell.inc, bell.since_ms)
        run = Run(place, more_slots=frozenset(bell.slots))
        return run if bell.inc == self.inc and not self.leaving and self.runs.enter(run) else None

    def _hinders(self, slots: Collection[int]) -> str:
        """Why nothing may be started in these slots, '' if it may; the operator is told each reason once."""
        hindrance = self.isolation.hindrance(slots)
        if hindrance and hindrance not in self._hindrances:
            log.warning("node %s: %s: it is not started on", self.spec.name, hindrance)
            self._hindrances.add(hindrance)
        return hindrance

    def run_of(self, place: Any) -> Run | None:
        """The run that a request's `parsync` header names, if it is one of this process's."""
        if not isinstance(place, dict) or "attempt" not in place:
            return None
        return self.runs.get((str(place["id"]), str(place["attempt"]), int(place["slot"])))

    def ended(self, run: Run, outcome: str) -> None:
        """A run has ended: succeeded, failed, cancelled, again, lost (its process), refused; the first word counts.

        One that was lost because the agent recalled it is *recalled*: its task goes back, and the start does not count.
        """
        if outcome == "lost" and run.ending == "recalled":
            outcome = "recalled"
        if self.runs.end(run, outcome):
            self._home.bring(run)

    # -- the threads that renew and tend -----------------------------------------------------------------------------

    def _renewing(self) -> None:
        if not self._wait_for_loop():
            return
        store, config = self.store.again(), None
        patience = Backoff(log, f"node {self.spec.name}", self._pause_s / 2, SAY_S)
        while not self._stop.is_set():
            pause_s = self._pause_s
            try:
                if config is None and (config := self._join(store)) is not None:
                    self._lease_s, self._pause_s = config.lease_s, config.lease_s / 5
                    pause_s = self._pause_s
                    patience.well()
                    patience = Backoff(log, f"node {self.spec.name}", pause_s / 2)
                    _hurry(store, config.lease_s)
                if config is not None:
                    if not self.inc:
                        self._register(store, config)
                    self._renew(store, config)
                patience.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = patience.pause_s(error)
                if config is None and isinstance(error, ParsyncError) and not isinstance(error, ServerUnreachable):
                    log.critical("node %s stops: %s", self.spec.name, error)
                    self.on_unfit()
                    return
            except Exception:
                log.exception("node %s: unexpected", self.spec.name)  # whatever it is, the lease goes on being renewed
            self._rest(pause_s)

    def _wait_for_loop(self) -> bool:
        """Waits until the event loop has turned for the first time: a node that cannot answer a doorbell is not up."""
        said_s = self._began_s
        while not self._turned_s:
            if self._stop.wait(BEAT_S / 4) or self.leaving:
                return False
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                log.warning("node %s is not up yet: its event loop does not turn; %s", self.spec.name, _whereabouts())
        return True

    def _tending(self) -> None:
        store, patience = self.store.again(), Backoff(log, f"node {self.spec.name}")
        while not self._stop.is_set():
            pause_s = self._pause_s
            try:
                if self.inc:
                    self._tend(store)
                patience.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = patience.pause_s(error)
            except Exception:
                log.exception("node %s: unexpected", self.spec.name)  # a result backend's own error, say
            self._rest(pause_s)

    def _rest(self, pause_s: float) -> None:
        if self.leaving:
            self._stop.wait(min(pause_s, 0.2))
        else:
            self._poke.wait(pause_s)

    def _join(self, store: Store) -> ClusterConfig | None:
        config = join_cluster(store, self.settings, create=False)
        if config is None:
            log.debug("node %s waits for the first scheduler of cluster %s", self.spec.name, store.keys.cluster)
        return config

    def _register(self, store: Store, config: ClusterConfig) -> None:
        spec, commands = self.spec, store.commands
        labels = " ".join(f"{name}:{value}" for name, value in spec.offer.labels if name != TASKS_LABEL)
        deal = commands.deal_node(spec.name, config.partitions, labels, spec.offer.slots, spec.score)
        partition = store.run(deal)
        store.run(commands.offer(spec.name, spec.offer.text, spec.tasks))  # first, so that no submit is refused
        sent_s = now_s()
        inc, _ = store.run(commands.register_node(partition, spec.name, self.inc, spec.score, spec.offer.text))
        self.partition, self.inc, self._moved, self._deaf = partition, inc, 0, ""
        log.info(
            "node %s is up: %s, score %g, partition p%d, incarnation %d",
            spec.name,
            spec.offer.text,
            spec.score,
            self.partition,
            self.inc,
        )
        try:
            self.isolation.renewed(sent_s, config.lease_s)
        finally:
            self.on_registered()

    def _pass(self, store: Store, config: ClusterConfig) -> None:
        """Renews and tends, one after the other."""
        if self._renew(store, config):
            self._tend(store)

    def _renew(self, store: Store, config: ClusterConfig) -> bool:
        """Renews the lease, and ends what must not go on; whether the node stands as it did."""
        commands, name, sent_s = store.commands, self.spec.name, now_s()
        reply = store.run(commands.renew(self.partition, name, self.inc))
        if reply[0] == "superseded":
            log.critical("another worker has registered as node %s: this one stops", name)
            self._end(self.runs.open())
            self.on_superseded()
            return False
        if reply[0] == "lapsed":
            log.warning("node %s was given up: what it ran is stopped, and it registers again", name)
            self._end(self.runs.open())
            if not self.leaving:
                self._register(store, config)
            return False
        self._moved = int(reply[1])
        if self.leaving and not self._said_leaving:
            if reply[2] != "leaving":
                store.run(commands.set_node(self.partition, name, "leaving", self.inc))
            self._said_leaving = True
        self._hearken(store, reply[2])
        self._end([run for run in self.runs.open() if run.place.inc != self.inc])
        if reply[3] == "2":  # the deadline of its drain is over
            self._end(self.runs.open(), "recalled")
        self.isolation.renewed(sent_s, config.lease_s)  # last: it may fail, and nothing else may wait for it
        return True

    def _hearken(self, store: Store, state: str) -> None:
        """The node is suspect while its event loop stands still, and gets tasks again when that turns.

        A pool that runs a task in the event loop itself (solo) is at work then, not deaf.
        """
        still_s, name = time.monotonic() - self._turned_s, self.spec.name
        if still_s > self._lease_s / 2 and not self.at_work() and not self.leaving:
            why = self._deaf or f"{STANDS_STILL}; {_whereabouts()}"
            if not self._deaf:
                log.warning("node %s is suspect, and gives back what has not begun: %s", name, why)
            self._deaf = why
            if state == "up":
                store.run(store.commands.set_node(self.partition, name, "suspect", self.inc, why))
        elif self._deaf:
            if state == "suspect":
                store.run(store.commands.set_node(self.partition, name, "trust", self.inc))
            self._deaf = ""
            log.warning("node %s gets tasks again: its event loop turns", name)

    def _tend(self, store: Store) -> None:
        """Compares leases with runs, ends what was cancelled, and announces verdicts; a node that leaves gives back."""
        if self.leaving:
            if self._said_leaving:
                self._give_back(store, self._unknown(store), "its worker shuts down")
            return
        if self._deaf:
            self._give_back_unrung(store, self._unknown(store), self._deaf)
        else:
            self._compare(store)
        self._end_cancelled(store)
        self._keep_known(store)
        announce(store, self.app, self.send_event)

    def _keep_known(self, store: Store) -> None:
        """Registers the tasks of this worker's app again if the server has lost them.

        What is damaged the leader deletes first.
        """
        spec = self.spec
        if spec.tasks is None:
            return
        with store.client.pipeline(transaction=False) as pipe:
            pipe.hexists(store.keys.queue("names"), spec.tasks.digest)
            pipe.zscore(store.keys.queue("apps"), spec.tasks.digest)
            known = pipe.execute(raise_on_error=False)
        if wrong := [reply for reply in known if isinstance(reply, Exception)]:
            if not is_damage(wrong[0]):
                raise wrong[0]
        elif not known[0] or known[1] is None:
            store.run(store.commands.offer(spec.name, spec.offer.text, spec.tasks))

    def _leases(self, store: Store) -> list[Lease]:
        """The leads of what this incarnation holds, as Redis has it."""
        node = store.nodes(self.partition).get(self.spec.name)
        if node is None:
            return []
        damaged: list[str] = []
        leases = store.leases(self.partition, [node], damaged)
        if damaged:
            repair_partition(store, self.partition)
        return [lease for lease in leases if lease.inc == self.inc and lease.slots]

    def _unknown(self, store: Store) -> list[Lease]:
        """Leases of which this process runs nothing.

        The table is read second: a run enters it before it asks to start, and leaves it after its lease is gone.
        """
        leases, keys = self._leases(store), self.runs.keys()
        return [lease for lease in leases if (lease.task, lease.attempt, lease.slot) not in keys]

    def _compare(self, store: Store) -> None:
        """Rings for leases that twice in a row were held and not run: their doorbell was lost.

        Where nothing may be started the task goes back instead: another slot may be free.
        """
        unknown = self._unknown(store)
        twice = [lease for lease in unknown if (lease.task, lease.attempt, lease.slot) in self._seen]
        self._seen = {(lease.task, lease.attempt, lease.slot) for lease in unknown}
        twice = [lease for lease in twice if not self._given_back(store, lease)]
        words = store.run_all([store.commands.ring(_place(self.partition, lease)) for lease in twice])
        for lease, word in zip(twice, words, strict=True):
            if word == "rung":
                log.info("rang again for task %s on slot %s/%d", lease.task, lease.node, lease.slot)

    def _given_back(self, store: Store, lease: Lease) -> bool:
        """Gives a lease back if nothing may be started in its slots."""
        hindrance = self._hinders(lease.slots)
        return bool(hindrance) and self._give_back_unrung(store, [lease], hindrance)

    def _give_back_unrung(self, store: Store, leases: list[Lease], why: str) -> bool:
        """Gives leases back of which this process runs nothing; the table keeps their doorbells off meanwhile."""
        held = [(Run(_place(self.partition, lease), more_slots=frozenset(lease.slots)), lease) for lease in leases]
        held = [(run, lease) for run, lease in held if self.runs.enter(run)]
        try:
            self._give_back(store, [lease for _, lease in held], why)
        finally:
            self.runs.drop([run for run, _ in held])
        return bool(held)

    def _give_back(self, store: Store, leases: list[Lease], why: str) -> None:
        """Tasks back to pending, then their slots free."""
        places = [_place(self.partition, lease) for lease in leases]
        for at in range(0, len(places), MAX_BATCH):
            some = places[at : at + MAX_BATCH]
            store.run(store.commands.requeue([(place, why) for place in some]))
            store.run(store.commands.release(self.partition, some))

    def _end_cancelled(self, store: Store) -> None:
        """Ends the runs whose tasks were cancelled, by the signal that the cancel names; or before they begin."""
        runs = self.runs.open()
        if not runs:
            return
        with store.client.pipeline(transaction=False) as pipe:
            for run in runs:
                pipe.hmget(store.keys.task(run.place.task), "attempt", "cancel")
            rows = pipe.execute()
        for run, (attempt, how) in zip(runs, rows, strict=True):
            if not (attempt and readable(attempt) == run.place.attempt and how):
                continue
            if run.request is None:
                run.unwanted = "cancelled"
            elif readable(how) not in ("after", run.ending):
                run.ending = signal if (signal := readable(how)) in Signals.__members__ else "SIGTERM"
                self.end_run(run.request, run.ending)

    def _end(self, runs: list[Run], ending: str = "SIGKILL") -> None:
        """Kills runs without a word to anybody: their tasks are others', or soon will be."""
        for run in runs:
            if run.request is None:
                run.unwanted = "recalled"
            elif not run.ending:
                run.ending = ending
                self.drop_run(run.request)


def _hurry(store: Store, lease_s: float) -> None:
    """Has a connection that went silent found out, and another tried, well before the lease is over."""
    timeout_s = min(5.0, max(0.5, lease_s / 4))
    pool = store.client.connection_pool
    pool.connection_kwargs.update(socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
    pool.disconnect()


def _whereabouts() -> str:
    """Where the thread of the event loop is, for people: the innermost function that is not Python's own."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None and _is_pythons(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "it has ended"
    return f"it waits in {frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


def _is_pythons(file: str) -> bool:
    return file.startswith(("<", sysconfig.get_path("stdlib"))) and "site-packages" not in file


def _place(partition: int, lease: Lease) -> Place:
    return Place(lease.task, lease.attempt, partition, lease.node, lease.slot, lease.inc, lease.since_ms)
