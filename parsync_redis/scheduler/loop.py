"""The loop of a scheduler process: hears ticks and wake-ups, asks the core for a plan, carries that out."""

import gc
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

import numpy as np
from redis.exceptions import RedisError, ResponseError

from ..errors import ParsyncError, ServerReadOnly, ServerUnreachable
from ..model.apps import KnownTasks
from ..model.ids import check_name, readable
from ..model.limits import MAX_BATCH
from ..model.node import read_nodes
from ..model.place import Place
from ..model.replies import Judged, Snapshot, Took
from ..model.task import Strategy
from ..settings import Settings
from ..store.calls import Call
from ..store.cluster import ClusterConfig, join_cluster
from ..store.quarantine import quarantine
from ..store.repair import repair_partition
from ..store.server_errors import Backoff, is_damage
from ..store.server_info import explain_durability
from ..store.store import Store
from .core import GIVE_BACK_MS, Core, Plan
from .leader import give_back
from .listener import Listener
from .membership import Membership
from .standby import Standby

log = logging.getLogger("parsync.scheduler")

SILENCE: Final = 3
"""Intervals without a tick after which a scheduler goes on by its own clock."""

LINGER_S: Final = 0.02
"""How long it listens on after it heard that a few slots of a full partition were freed: more will be, for one turn."""

RESTS: Final = 4
"""How often in a gap a scheduler with nothing to do takes in the ticks that came; a wake-up ends its rest at once."""

FEW: Final = 4
"""Fewer than one in so many slots are few."""

MEANWHILE_S: Final = 0.005
"""How long it waits at least before it takes tasks that fall due: of many, all that fall due until then come at
once."""

SETTLE_S: Final = 0.25
"""How long a worker has to start what was placed with it; what it has not started by then is confirmed."""

SAY_S: Final = 5.0
"""How often a scheduler that waits for its server says so."""

RETRY_S: Final = 0.5
"""How often it asks for its server."""

OBSERVE_S: Final = 0.25
"""How often a scheduler writes down its figures, at most."""


def own_name() -> str:
    """A name that no other process has: host, process, and a few random letters."""
    host = "".join(c if c.isalnum() or c in "_.-" else "-" for c in socket.gethostname())[:64].strip("-_.") or "host"
    return f"{host}-{os.getpid()}-{random.randrange(16**4):04x}"


def _number(value: Any) -> int:
    """A number as Redis has it; 0 where it is none."""
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 16 else 0


class Scheduler:
    """One scheduler process: the core, the store, the listener and the membership thread around it."""

    def __init__(self, store: Store, config: ClusterConfig, settings: Settings, name: str, at_most: int = 0) -> None:
        self.store, self.config, self.name = store, config, check_name("scheduler name", name)
        seed = np.random.SeedSequence()
        self.core = Core(
            name, config.partitions, Strategy(settings.strategy), settings.tau_s, np.random.default_rng(seed)
        )
        self._ears = Listener(store.again(), name, config.partitions)
        self._stats: dict[str, str | int | float] = {"pid": os.getpid()}  # its age tells when it renewed
        self.membership = Membership(store.again(), name, config, lambda: self._stats, at_most)
        self._rank = self.membership.rank
        self._sequence = 0
        self._only_read = False
        self._observed_s = 0.0
        self._compared_s = float("-inf")
        self._confirmed_s = float("-inf")
        self._heard_s = time.monotonic()
        self._next_own_s = float("inf")
        self._task_due_s = float("inf")
        self._patience = Backoff(log, f"scheduler {self.name}")
        self._run_id = ""

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set, or it is out; then gives back what it has taken and leaves."""
        entered = trouble = False
        while not (stop.is_set() or self.membership.out):
            try:
                if not entered:
                    if not self._enter():
                        break
                    self.membership.start()
                    entered = True
                    log.info("scheduler %s runs in cluster %s", self.name, self.store.keys.cluster)
                if trouble:
                    self._recover()
                    trouble = False
                self._turn()
            except (ParsyncError, RedisError, OSError) as error:
                trouble = True
                stop.wait(self._patience.pause_s(error))
        try:
            if entered:
                self._leave()
        finally:
            self._close()

    def _enter(self) -> bool:
        """Joins; False if others have come first, and there may be no more."""
        self.membership.renew()
        if self.membership.out:
            return False
        self._ears.listen()
        return True

    def _turn(self) -> None:
        """Carries out what is to do and hears what came meanwhile; with nothing to do, waits for something to hear."""
        # Never twice in a row: ticks may come faster than turns.
        self._only_read = self.core.due and not self._only_read
        if time.monotonic() >= self._task_due_s:
            self._task_due_s = float("inf")
            self.core.on_wake()
        plan = self.core.plan(place=not self._only_read, confirm=False)
        if plan:
            self._carry_out(plan)
        now_s = time.monotonic()
        if now_s - self._confirmed_s > SETTLE_S:
            self._confirmed_s = now_s
            self._confirm_late()
        if now_s - self._compared_s > self.config.lease_s:
            self._compared_s = now_s
            self._give_back_strays()
        if now_s - self._observed_s > OBSERVE_S:
            self._observe(now_s)
        self._hear(0.0 if plan else self._patience_s(now_s))

    def _patience_s(self, now_s: float) -> float:
        """How long to wait for something to hear, at most half a second: until this scheduler's own clock is due, until
        a delayed task is due, or until it takes in the ticks that came while it had nothing to do.
        """
        due_s = self._heard_s + SILENCE * self._interval_s
        if self._next_own_s < float("inf"):
            due_s = self._next_own_s
        elif self._rests:
            due_s = now_s + self.config.gap_s / RESTS
        return max(0.0, min(due_s - now_s, self._task_due_s - now_s, 0.5))

    @property
    def _rests(self) -> bool:
        """Whether it lets ticks wait: it has nothing to do, and ticks come more often than it would look for them."""
        return self.core.at_rest and self._rank.members > RESTS

    @property
    def _interval_s(self) -> float:
        return self.config.gap_s / self._rank.members

    def _hear(self, timeout_s: float) -> None:
        """Takes in what is there to hear; ticks by its own clock when the leader's do not come."""
        due_s = 0.0
        while words_heard := self._ears.hear(timeout_s, ticks=not self._rests):
            now_s = time.monotonic()
            for words in words_heard:
                if words[0] == "tick":
                    self._on_tick(int(words[1]), int(words[2]))
                elif words[0] == "deaf":
                    self._heard_s = float("-inf")
                elif words[0] == "wake":
                    self.core.on_wake()
                elif words[0] == "freed":
                    self.core.on_freed(int(words[1]))
                    few = FEW * int(words[2]) < int(words[3])
                    due_s = due_s or now_s + (LINGER_S if few else 0.0)
            timeout_s = due_s - now_s
            if timeout_s <= 0:
                break
        rank = self.membership.rank
        if rank is not self._rank:
            if rank.joined != self._rank.joined:
                log.warning("scheduler %s was taken for dead; its tasks were given back", self.name)
                self._give_back_all()
            elif self._rank.server and rank.server not in (self._rank.server, self._run_id):
                log.warning("scheduler %s: the server is another one now; its tasks are given back", self.name)
                self._run_id = rank.server
                self._give_back_all()
            self._rank = rank
            self.core.on_members(rank.ordinal, rank.members)
        self._own_clock()

    def _on_tick(self, sequence: int, epoch: int) -> None:
        self._sequence, self._heard_s, self._next_own_s = sequence, time.monotonic(), float("inf")
        self.core.on_tick(sequence)
        if epoch != self._rank.epoch:
            self.membership.poke()

    def _own_clock(self) -> None:
        now_s, interval_s = time.monotonic(), self._interval_s
        if self._next_own_s == float("inf"):
            if now_s - self._heard_s < SILENCE * interval_s:
                return
            self._ears.listen()
            self._next_own_s = now_s
        while self._next_own_s <= now_s:
            self._sequence += 1
            self.core.on_tick(self._sequence, own=True)
            self._next_own_s = max(self._next_own_s + interval_s, now_s - interval_s)

    # -- round trips -------------------------------------------------------------------------------------------------

    def _carry_out(self, plan: Plan) -> None:
        if plan.read_nodes:
            self._read_nodes(plan.read_nodes)
        commands, calls = self.store.commands, list[Call[Any]]()
        if plan.confirm:
            calls.append(commands.confirm(plan.confirm))
        if plan.note:
            calls.append(commands.note(plan.note))
        if plan.give_back:
            calls.append(commands.give_back(self.name, plan.give_back, GIVE_BACK_MS))
        calls += [commands.commit(p, claims) for p, claims in plan.commit.items()]
        for p in plan.read:
            waiter = self.name if p in plan.ask else ""
            calls.append(commands.read_partition(p, self.core.view.partitions[p].version, waiter))
        if plan.take:
            calls.append(commands.take(self.name, plan.take, f".{self.core.rng.integers(10**6)}", waits=True))
        replies = self.store.run_all(calls)
        if plan.take or plan.commit:
            self._patience.well()  # a full server lets other things pass
        now_s = time.monotonic()
        for reply in replies:
            if isinstance(reply, Judged):
                self.core.on_judged(reply)
            elif isinstance(reply, Snapshot):
                self.core.on_snapshot(reply, now_s)
                if reply.damaged:
                    repair_partition(self.store, reply.partition)
            elif isinstance(reply, Took):
                self.core.on_took(reply)
                self._task_due_s = float("inf")
                if reply.due_ms is not None:
                    self._task_due_s = now_s + max(MEANWHILE_S, (reply.due_ms - reply.now_ms) / 1000)
                if reply.tasks:
                    self.core.on_wake()  # more may have come; the take that finds none asks to be woken
                for task, why in reply.failed:
                    quarantine(self.store, self.store.keys.task(task), why, b"")

    def _confirm_late(self) -> None:
        """Confirms what was placed a while ago and has not started: `start` removes a task from `taken` too."""
        places = self.core.due_to_confirm
        self._confirm(places)
        self.core.confirmed(len(places))

    def _confirm(self, places: Sequence[Place]) -> None:
        taken = self.store.keys.queue("taken")
        for at in range(0, len(places), MAX_BATCH):
            some = places[at : at + MAX_BATCH]
            owners = self.store.client.hmget(taken, [place.task for place in some])
            late = [place for place, owner in zip(some, owners, strict=True) if owner == self.name.encode()]
            if late:
                self.store.run(self.store.commands.confirm(late))

    def _read_nodes(self, partitions: list[int]) -> None:
        """Reads the epoch before the nodes, so that what it has is never older than the epoch says.

        What cannot be read is left out, and repaired.
        """
        keys = self.store.keys
        with self.store.client.pipeline(transaction=False) as pipe:
            for p in partitions:
                pipe.hget(keys.partition(p, "meta"), "epoch")
                pipe.hgetall(keys.partition(p, "nodes"))
            replies = pipe.execute(raise_on_error=False)
        for error in replies:
            if isinstance(error, Exception) and not is_damage(error):
                raise error
        for i, p in enumerate(partitions):
            epoch, records = replies[2 * i : 2 * i + 2]
            nodes, damaged = read_nodes(records if isinstance(records, dict) else {})
            if damaged or isinstance(epoch, Exception) or isinstance(records, Exception):
                repair_partition(self.store, p)
            self.core.on_nodes(p, nodes.values(), _number(epoch))
        self._read_names()

    def _read_names(self) -> None:
        """Reads the task names of digests that are new to this scheduler, once each."""
        if unread := sorted(self.core.view.unread()):
            try:
                texts = cast(list[bytes | None], self.store.client.hmget(self.store.keys.queue("names"), unread))
            except ResponseError as error:
                if not is_damage(error):
                    raise
                return  # the leader deletes the key, and the nodes register their names again
            for digest, text in zip(unread, texts, strict=True):
                if text is not None:
                    self.core.on_names(digest, KnownTasks(readable(text)).declared)

    def _recover(self) -> None:
        """After an outage only what was won is certain: everything else taken goes back, everything is read again.

        Another server may not know of what was won.
        """
        self._run_id = self.store.run_id()
        self._ears.listen()
        if self._run_id and self._run_id == self._rank.server:
            self._confirm(self.core.unconfirmed)
        self._give_back_all()

    def _mine(self) -> list[str]:
        taken = self.store.client.hscan_iter(self.store.keys.queue("taken"), count=1000)
        return [readable(task) for task, owner in taken if owner == self.name.encode()]

    def _give_back_all(self) -> None:
        give_back(self.store, self.name, self._mine(), "")
        self.core.forget()

    def _give_back_strays(self) -> None:
        """Gives back what was taken under this name and is in no hand.

        The take of a request that was given up may still come late; or an earlier process of this name took it.
        """
        hands = self.core.hands
        if strays := [task for task in self._mine() if task not in hands]:
            log.warning("%d tasks were taken, but in no hand: they go back", len(strays))
            give_back(self.store, self.name, strays, "")

    def _leave(self) -> None:
        self.membership.stop()
        try:
            while plan := self.core.plan():
                plan.commit.clear()
                plan.take, plan.read = 0, []
                if not plan.confirm:
                    break
                self._carry_out(plan)
            self._give_back_all()
            self.membership.leave()
            log.info("scheduler %s has left", self.name)
        except (ParsyncError, RedisError, OSError) as error:
            log.warning("scheduler %s could not leave in order: %s", self.name, error)

    def _close(self) -> None:
        """Closes the connections that are this scheduler's own: another may follow it in this process."""
        self._ears.close()
        self.membership.store.client.connection_pool.disconnect()

    def _observe(self, now_s: float) -> None:
        self._observed_s = now_s
        self._read_names()
        core, ages = self.core, self.core.view.ages_s(now_s)
        self._stats = {
            "strategy": core.selector.strategy,
            "selector": core.selector.resolve(""),
            "delay_ms": round(core.selector.delay_s * 1e3, 1),
            "in_flight": core.in_flight,
            "free": core.view.free_count,
            "view_age_ms": round(1e3 * sum(ages) / len(ages), 1) if ages else 0,
            "view_age_max_ms": round(1e3 * max(ages), 1) if ages else 0,
            "pid": os.getpid(),
            **asdict(core.counters),
        }


def run(settings: Settings, name: str | None = None, stop: threading.Event | None = None, at_most: int = 0) -> None:
    """Runs a scheduler in this process until `stop` is set; sets the cluster up if it is the first.

    While no server answers it waits and says so. at_most: while the cluster has so many schedulers it stands by; 0:
    never. Raises ServerUnfit or ClusterMismatch before it starts; later outages it survives.
    """
    store = Store.from_url(settings.url, settings.cluster, settings.retention_s, settings.max_starts)
    stop = stop or threading.Event()
    config = join_when_up(store, settings, stop)
    if config is None:
        return
    gc.freeze()  # what was imported stays: the collector, which stops all threads, need not look through it
    name = check_name("scheduler name", name or own_name())
    while not stop.is_set():
        if at_most and not Standby(store, config, name, at_most).wait(stop):
            break
        Scheduler(store, config, settings, name, at_most).run(stop)


def join_when_up(store: Store, settings: Settings, stop: threading.Event) -> ClusterConfig | None:
    """The cluster's settings, as soon as its server takes writes; says now and then that it waits. None if stopped.

    It waits for a replica as well, which becomes the primary in a failover. Raises ServerUnfit, AccessDenied or
    ClusterMismatch at once: no waiting repairs those.
    """
    said_s = float("-inf")
    while not stop.is_set():
        try:
            config = join_cluster(store, settings, create=True)
            if danger := explain_durability(store.check_server()):
                log.warning("the server at %s: %s", store.address, danger)
            return config
        except (ServerUnreachable, ServerReadOnly) as error:
            if time.monotonic() - said_s >= SAY_S:
                said_s = time.monotonic()
                log.warning("%s: this scheduler waits for it", error)
        stop.wait(RETRY_S)
    return None
