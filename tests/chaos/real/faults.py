"""The faults: what happens to processes, lines and the server, drawn by seed.

Each heals by itself after a while.
"""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import redis
from redis.exceptions import RedisError

from parsync_redis.cli.stack import Process
from parsync_redis.errors import ParsyncError
from parsync_redis.wire.keys import Keys
from tests.kit.waiting import ended

from .proxy import MODES, Line
from .stack import Member, Stack, children, send

MOST_WORKERS: Final = 2
MOST_SCHEDULERS: Final = 2
"""Maximum numbers of workers, and of schedulers, under a fault at one time: some must be there to take over."""


class Storm:
    """Draws faults for a stack and lets them heal. `say` hears a line for each."""

    def __init__(
        self, stack: Stack, lines: dict[str, Line], seed: int, say: Callable[[str], None]
    ) -> None:
        self.stack = stack
        self.lines = lines
        self.say = say
        self.lease_s = stack.lease_s
        self.faults: Mapping[str, Fault] = FAULTS
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.server_up_s: list[float] = []
        self._server_busy = False
        self._busy_lines: set[str] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._keys = Keys(stack.cluster)

    # -- time --------------------------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something done by `step`, after so long."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), do))

    def step(self) -> None:
        """Do what is due, and restart members that have ended by themselves."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        self.stack.supervise()

    def calm(self) -> bool:
        """Heal everything now; False as long as somebody is still on his way out."""
        due = self._due
        self._due = []
        for _, _, do in sorted(due):
            do()
        for line in self.lines.values():
            line.heal()
        return not self._due

    # -- drawing -----------------------------------------------------------------------------------

    def strike(self) -> None:
        """Cause one fault, of a kind that is possible now."""
        kinds = list(self.faults)
        while kinds:
            kind = self.dice.choices(kinds, [self.faults[kind][0] for kind in kinds])[0]
            what = self.faults[kind][1](self)
            if what:
                self.counts[kind] += 1
                self.say(f"{kind}: {what}")
                return
            kinds.remove(kind)

    def _free(self, worker: bool) -> list[Member]:
        """Return members that a fault may be laid upon."""
        kind = [m for m in self.stack.members.values() if m.name.startswith("scheduler") != worker]
        free = [member for member in kind if member.alive and not member.busy]
        return free if len(kind) - len(free) < (MOST_WORKERS if worker else MOST_SCHEDULERS) else []

    def _one(self, worker: bool) -> Member | None:
        free = self._free(worker)
        return self.dice.choice(free) if free else None

    def _leader(self) -> Member | None:
        key = self._keys.shared("leader")
        try:
            with self.stack.client_of(key) as client:
                text: Any = client.hget(key, "holder") or b""
        except (ParsyncError, RedisError):
            return None
        name = text.decode().partition(" ")[0]
        return next((member for member in self._free(worker=False) if member.name == name), None)

    def _back_after(self, member: Member, seconds: float) -> None:
        """Start a new process in the member's place after so long."""
        member.busy = True

        def back() -> None:
            self.stack.launch(member.name)
            member.busy = False

        self.later(seconds, back)

    # -- processes ---------------------------------------------------------------------------------

    def kill_worker(self) -> str | None:
        """Send SIGKILL to a worker and all its processes."""
        if (member := self._one(worker=True)) is None:
            return None
        away_s = self.dice.uniform(0.1, 4 * self.lease_s)
        self.stack.signal(_process(member), signal.SIGKILL)
        self._back_after(member, away_s)
        return f"{member.name}, away {away_s:.1f} s"

    def kill_main(self) -> str | None:
        """Send SIGKILL to a worker's main process only: its pool processes become orphans."""
        if (member := self._one(worker=True)) is None:
            return None
        away_s = self.dice.uniform(0.1, 2 * self.lease_s)
        send(_process(member).popen.pid, signal.SIGKILL)
        self._back_after(member, away_s)
        return f"{member.name}, away {away_s:.1f} s"

    def kill_child(self) -> str | None:
        """Send SIGKILL to one pool process."""
        pids = {
            pid: m.name for m in self._free(worker=True) for pid in children(_process(m).popen.pid)
        }
        if not pids:
            return None
        pid = self.dice.choice(sorted(pids))
        send(pid, signal.SIGKILL)
        return f"{pid} of {pids[pid]}"

    def kill_scheduler(self) -> str | None:
        """Send SIGKILL to a scheduler."""
        return self._kill_scheduler(self._one(worker=False))

    def kill_leader(self) -> str | None:
        """Send SIGKILL to the leader."""
        return self._kill_scheduler(self._leader())

    def _kill_scheduler(self, member: Member | None) -> str | None:
        if member is None:
            return None
        away_s = self.dice.uniform(0.1, 3 * self.lease_s)
        self.stack.signal(_process(member), signal.SIGKILL)
        self._back_after(member, away_s)
        return f"{member.name}, away {away_s:.1f} s"

    def pause(self, member: Member | None) -> str | None:
        """Send SIGSTOP, and SIGCONT a third of a lease to two leases later."""
        if member is None:
            return None
        process = _process(member)
        seconds = self.dice.uniform(0.3, 2.0) * self.lease_s
        member.busy = True
        self.stack.signal(process, signal.SIGSTOP)

        def go_on() -> None:
            self.stack.signal(process, signal.SIGCONT)
            member.busy = False

        self.later(seconds, go_on)
        return f"{member.name} for {seconds:.1f} s"

    def stop_main(self) -> str | None:
        """Send SIGSTOP to a worker's main process only, for up to two leases: its guard keeps the
        lease.
        """
        if (member := self._one(worker=True)) is None:
            return None
        process = _process(member)
        seconds = self.dice.uniform(0.3, 2.0) * self.lease_s
        member.busy = True
        send(process.popen.pid, signal.SIGSTOP)

        def go_on() -> None:
            send(process.popen.pid, signal.SIGCONT)
            member.busy = False

        self.later(seconds, go_on)
        return f"{member.name} for {seconds:.1f} s"

    def zombie(self) -> str | None:
        """Stop a worker, give its name to another, and then let the first go on."""
        if (member := self._one(worker=True)) is None:
            return None
        process = _process(member)
        seconds = self.dice.uniform(1.0, 2.5) * self.lease_s
        self.stack.signal(process, signal.SIGSTOP)
        self._back_after(member, 0.1)
        self.later(seconds, lambda: self.stack.signal(process, signal.SIGCONT))
        return f"{member.name}, the old one goes on after {seconds:.1f} s"

    def terminate(self, worker: bool) -> str | None:
        """Send SIGTERM: the member leaves in order, and another takes its name."""
        if (member := self._one(worker)) is None:
            return None
        process = _process(member)
        deadline = time.monotonic() + 180
        member.busy = True
        process.send(signal.SIGTERM)

        def again() -> None:
            if process.alive and time.monotonic() < deadline:
                self.later(0.1, again)
                return
            self.stack.signal(process, signal.SIGKILL)
            self.stack.launch(member.name)
            member.busy = False

        self.later(0.1, again)
        return member.name

    # -- lines -------------------------------------------------------------------------------------

    def line(self) -> str | None:
        """Let a line fail as networks do, for a while."""
        free = [name for name in self.lines if name not in self._busy_lines]
        if not free or len(self._busy_lines) >= 2:
            return None
        name = self.dice.choice(sorted(free))
        mode = self.dice.choice((*MODES, "reset"))
        seconds = self.dice.uniform(0.2, 2.0) * self.lease_s
        cuts = self.dice.randint(1, 4)
        line = self.lines[name]
        if mode == "reset":
            line.reset()
            return f"{name} reset"
        self._busy_lines.add(name)
        line.turn(mode, cuts, seconds=self.dice.uniform(0.05, 0.5))

        def heal() -> None:
            line.heal()
            self._busy_lines.discard(name)

        self.later(seconds, heal)
        return f"{name} {mode} for {seconds:.1f} s" + (
            f", {cuts} times" if mode.startswith("cut") else ""
        )

    # -- the server --------------------------------------------------------------------------------

    def kill_server(self) -> str | None:
        """Send SIGKILL to the server; the server starts again on its files."""
        if self._server_busy:
            return None
        self._server_busy = True
        away_s = self.dice.uniform(0.0, 1.5)
        self.stack.server.process.kill()
        ended(self.stack.server.process)

        def back() -> None:
            self.stack.server.restart(kill=True)
            self.server_up_s.append(time.monotonic())
            self._server_busy = False

        self.later(away_s, back)
        return f"away {away_s:.1f} s"

    def stop_server(self) -> str | None:
        """Stop the server with SIGSTOP for up to one and a half leases."""
        if self._server_busy:
            return None
        self._server_busy = True
        pid = self.stack.server.process.pid
        seconds = self.dice.uniform(0.2, 1.5) * self.lease_s
        send(pid, signal.SIGSTOP)

        def go_on() -> None:
            send(pid, signal.SIGCONT)
            self._server_busy = False

        self.later(seconds, go_on)
        return f"for {seconds:.1f} s"

    def server_key(self) -> str:
        """Return a key of the server on which the next command of an operator is carried out."""
        return self._keys.shared("config")

    def _admin_call(self, what: str, *words: Any) -> str | None:
        if self._server_busy:
            return None
        try:
            with self.stack.client_of(self.server_key()) as client:
                client.execute_command(*words)
        except redis.exceptions.ResponseError as error:
            return f"{what} ({error})"
        except RedisError:
            return None
        return what

    def flush_scripts(self) -> str | None:
        """Send SCRIPT FLUSH."""
        return self._admin_call("all of them", "SCRIPT", "FLUSH")

    def kill_clients(self) -> str | None:
        """Send CLIENT KILL for ordinary connections or for subscribers."""
        kind = self.dice.choice(("normal", "pubsub"))
        return self._admin_call(kind, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def pause_clients(self) -> str | None:
        """Send CLIENT PAUSE for all commands or for writes."""
        ms = self.dice.randint(200, 1500)
        kind = self.dice.choice(("WRITE", "ALL"))
        return self._admin_call(f"{kind} for {ms} ms", "CLIENT", "PAUSE", ms, kind)

    def rewrite(self) -> str | None:
        """Rewrite the append-only file."""
        return self._admin_call("begun", "BGREWRITEAOF")

    def fill_memory(self) -> str | None:
        """Fill the server's memory for a while."""
        seconds = self.dice.uniform(0.3, 1.5) * self.lease_s
        if self._admin_call("", "CONFIG", "SET", "maxmemory", 1) is None:
            return None
        self.later(seconds, self._empty_memory)
        return f"for {seconds:.1f} s"

    def _empty_memory(self) -> None:
        try:
            with self.stack.client_of(self.server_key()) as client:
                client.execute_command("CONFIG", "SET", "maxmemory", 0)
        except RedisError:
            # the server is away; one that was killed has forgotten it, too
            self.later(0.2, self._empty_memory)


def _process(member: Member) -> Process:
    assert member.process is not None
    return member.process


Fault = tuple[float, Callable[[Any], str | None]]
"""The frequency of a fault, and the function of a storm that causes it.

The function returns a text, or None if it can cause no fault now.
"""

FAULTS: Final[Mapping[str, Fault]] = {
    "kill worker": (3.0, Storm.kill_worker),
    "kill worker's main process": (2.0, Storm.kill_main),
    "kill pool process": (4.0, Storm.kill_child),
    "kill scheduler": (2.0, Storm.kill_scheduler),
    "kill leader": (2.0, Storm.kill_leader),
    "kill server": (1.5, Storm.kill_server),
    "stop server": (1.0, Storm.stop_server),
    "stop worker": (3.0, lambda storm: storm.pause(storm._one(worker=True))),
    "stop worker's main process": (2.0, Storm.stop_main),
    "stop scheduler": (1.5, lambda storm: storm.pause(storm._one(worker=False))),
    "stop leader": (1.0, lambda storm: storm.pause(storm._leader())),
    "zombie": (2.0, Storm.zombie),
    "terminate worker": (1.5, lambda storm: storm.terminate(worker=True)),
    "terminate scheduler": (1.0, lambda storm: storm.terminate(worker=False)),
    "line": (12.0, Storm.line),
    "flush scripts": (1.5, Storm.flush_scripts),
    "kill connections": (2.0, Storm.kill_clients),
    "pause connections": (1.0, Storm.pause_clients),
    "rewrite append-only file": (0.5, Storm.rewrite),
    "memory full": (1.0, Storm.fill_memory),
}
"""The faults on a stack with one server."""
