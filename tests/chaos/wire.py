"""The wire between the processes and a real server: what is sent may be lost, cut, late, doubled,
or its reply unheard.

The product's own `Store` sends through it; the scripts are those of a folder of Lua files (the
product's, or a mutant's), in which the server's clock is replaced by the schedule's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from parsync_redis.errors import ParsyncError, ServerUnreachable
from parsync_redis.store import Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS, Call
from parsync_redis.store.scripts.scripts import Script, compose, lua_folder, read_header
from parsync_redis.store.server.server_info import ServerRun

if TYPE_CHECKING:
    from .world import Process, World

CLUSTER = "chaos"
RETENTION_S = 86_400
MAX_STARTS = 3
NOW = "chaos:now"
MOVES = frozenset(
    (
        "take",
        "commit",
        "confirm",
        "start",
        "finish",
        "release",
        "requeue",
        "give_back",
        "set_node",
        "reclaim",
    )
)
_TIME = re.compile(r"local time = redis[._]call\('TIME'\)")
_CHAOS_TIME = (
    f"local ms = redis.call('GET', '{NOW}') "
    "local time = {string.sub(ms, 1, -4), string.sub(ms, -3) .. '000'}"
)


class Clock:
    """Stands in for the module `time`: one monotonic clock for all processes, and a wall clock that
    may jump.
    """

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_s = 1_700_000_000.0
        self.was_set_back = False

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def wall_ms(self) -> int:
        """Return what the server's clock says."""
        return round((self.now_s + self.wall_s) * 1000)

    def time(self) -> float:
        """Return what a machine's clock says, which the product must judge no lease by."""
        return self.now_s + self.wall_s


class Scripts:
    """The scripts of one folder, with the schedule's clock for the server's."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or lua_folder()
        texts = {
            script.verb: compose(read_header(script.verb, folder), folder) for script in ALL_SCRIPTS
        }
        self.texts = {verb: _TIME.sub(_CHAOS_TIME, text) for verb, text in texts.items()}
        real = [verb for verb, text in self.texts.items() if "'TIME'" in text]
        assert not real, f"{real} would read the server's own clock"
        self.shas = {
            verb: hashlib.sha1(text.encode()).hexdigest() for verb, text in self.texts.items()
        }


@dataclass(slots=True)
class Request:
    """Calls that one process sent together and that are still on their way."""

    process: Process
    hand: str
    calls: Sequence[Call[Any]]

    @property
    def moves(self) -> bool:
        """Return whether the request moves a task or a lease on its way, judges a process, or says what a node may do."""
        return any(call.script.verb in MOVES or _removes(call) for call in self.calls)


def _removes(call: Call[Any]) -> bool:
    """Return whether a renewal also removes a scheduler that was judged lost."""
    return call.script.verb == "renew_scheduler" and bool(
        call.script.header.named([str(arg) for arg in call.args]).lost
    )


class Wire:
    """Executes requests on the server and tells the ghost what they did; `late` are those still on
    their way.
    """

    def __init__(self, world: World, client: redis.Redis, scripts: Scripts) -> None:
        self.world = world
        self.client = client
        self.scripts = scripts
        self.late: list[Request] = []

    def load(self) -> None:
        """Load every script."""
        with self.client.pipeline(transaction=False) as pipe:
            for text in self.scripts.texts.values():
                pipe.execute_command("SCRIPT LOAD", text)
            pipe.execute()

    def execute(self, process: Process, calls: Sequence[Call[Any]]) -> list[Any]:
        """Return what the server answers; errors are among the replies."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.set(NOW, self.world.clock.wall_ms())
            for call in calls:
                pipe.execute_command(
                    "EVALSHA",
                    self.scripts.shas[call.script.verb],
                    len(call.keys),
                    *call.keys,
                    *call.args,
                )
            replies = pipe.execute(raise_on_error=False)[1:]
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            self.world.ghost.executed(process, calls, replies)
        else:
            done = [i for i, reply in enumerate(replies) if not isinstance(reply, NoScriptError)]
            self.world.ghost.executed(process, [calls[i] for i in done], [replies[i] for i in done])
        return replies

    def send(self, process: Process, hand: str, calls: Sequence[Call[Any]]) -> list[Any]:
        """Send a request for a process. The dice decide what becomes of the request.

        With several primaries the dice decide for each primary by itself.
        """
        world = self.world
        world.between(process)
        if not world.primaries.several:
            return self._deliver(process, hand, calls)
        groups: dict[str, list[int]] = {}
        for i, call in enumerate(calls):
            groups.setdefault(world.primaries.of(call.keys[0]), []).append(i)
        replies: list[Any] = [None] * len(calls)
        for name in world.rng.sample(sorted(groups), len(groups)):
            try:
                self.check_away(name)
                some = self._deliver(process, hand, [calls[i] for i in groups[name]])
            except RedisConnectionError as error:
                some = [ServerUnreachable(f"{name}: {error}")] * len(groups[name])
            for i, reply in zip(groups[name], some, strict=True):
                replies[i] = reply
        return replies

    def check_away(self, name: str) -> None:
        """Raise RedisConnectionError if a primary is away."""
        if self.world.primaries.is_away(name, self.world.clock.now_s):
            self.world.ghost.coverage["requests to a primary that is away"] += 1
            raise RedisConnectionError("chaos: the primary is away")

    def _deliver(self, process: Process, hand: str, calls: Sequence[Call[Any]]) -> list[Any]:
        world = self.world
        fate = world.fate()
        world.trace("request", process, hand, [call.script.verb for call in calls], fate)
        if fate == "lost":
            raise RedisConnectionError("chaos: the request was lost")
        if fate == "late":
            self.late.append(Request(process, hand, calls))
            raise RedisConnectionError("chaos: the request is on its way")
        if fate == "cut":
            count = world.rng.randrange(len(calls))
            self.execute(process, calls[:count]) if count else []
            if world.rng.random() < 0.5:
                self.late.append(Request(process, hand, calls[count:]))
            raise RedisConnectionError("chaos: the connection was cut")
        replies = self.execute(process, calls)
        request = Request(process, hand, calls)
        if fate == "twice" or (request.moves and world.dares(world.dice.odds["again"])):
            self.late.append(request)
        world.between(process)
        if fate == "unheard":
            raise RedisConnectionError("chaos: the reply was lost")
        return replies

    def arrive(self, request: Request) -> None:
        """Execute a late request whose reply nobody hears; load a missing script, and execute the request again."""
        self.world.trace(
            "arrives", request.process, request.hand, [call.script.verb for call in request.calls]
        )
        if any(
            isinstance(reply, NoScriptError)
            for reply in self.execute(request.process, request.calls[:1])
        ):
            self.load()
            self.execute(request.process, request.calls[:1])
        if request.calls[1:]:
            self.execute(request.process, request.calls[1:])

    def ask(self, process: Process, *keys: str | bytes) -> None:
        """Let others act, or break the connection, before a process reads with plain commands."""
        self.world.between(process)
        for key in keys:
            self.check_away(self.world.primaries.of(key))
        if self.world.fate() in ("lost", "unheard", "cut"):
            raise RedisConnectionError("chaos: the connection broke")


class WireClient:
    """A redis client of one process: plain commands, each with its own fate."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def pipeline(self, transaction: bool = False) -> WirePipeline:
        """Return a pipeline; other processes may act between its commands."""
        return WirePipeline(self._world, self._process)

    def info(self, *sections: str) -> dict[str, str]:
        """Return the run id, which the schedule changes when the server restarts."""
        self._world.wire.ask(self._process)
        return {"run_id": self._world.primaries.run_of("")}

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def __getattr__(self, name: str) -> Any:
        def command(*args: Any, **kwargs: Any) -> Any:
            several = self._world.primaries.several
            try:
                self._world.wire.ask(self._process, *(args[:1] if several else ()))
            except RedisConnectionError as error:
                if several:
                    raise ServerUnreachable(str(error)) from None
                raise
            return getattr(self._world.wire.client, name)(*args, **kwargs)

        return command


class WirePipeline:
    """Collects commands, and executes them one by one if other processes act between them, else in one round trip."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._commands: list[tuple[str, tuple[Any, ...]]] = []

    def __enter__(self) -> WirePipeline:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._commands.append((name, args))

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Return the replies; here no key is damaged, so that none of them is an error."""
        world = self._world
        if world.primaries.several:
            return self._ask_several(raise_on_error)
        world.wire.ask(self._process)
        if len(self._commands) < 5 and world.dares(0.3):
            replies = []
            for name, args in self._commands:
                world.between(self._process)
                replies.append(getattr(world.wire.client, name)(*args))
            return replies
        with world.wire.client.pipeline(transaction=False) as pipe:
            for name, args in self._commands:
                getattr(pipe, name)(*args)
            return pipe.execute()

    def _ask_several(self, raise_on_error: bool) -> list[Any]:
        """Return the replies of several primaries; one that fails has errors in their place, or the
        first is raised.
        """
        world = self._world
        failed = dict[str, ParsyncError]()
        names = [world.primaries.of(args[0]) for _, args in self._commands]
        for name in dict.fromkeys(names):
            try:
                world.wire.check_away(name)
                world.wire.ask(self._process)
            except RedisConnectionError as error:
                failed[name] = ServerUnreachable(f"{name}: {error}")
        if failed and raise_on_error:
            raise next(iter(failed.values()))
        return [
            failed[name] if name in failed else getattr(world.wire.client, command)(*args)
            for name, (command, args) in zip(names, self._commands, strict=True)
        ]


class WireStore(Store):
    """The product's store for one hand of one process, over the wire."""

    def __init__(self, world: World, process: Process, hand: str) -> None:
        client = cast(Any, WireClient(world, process))
        shards = world.primaries.keys.shards
        super().__init__(client, CLUSTER, RETENTION_S, MAX_STARTS, shards=shards)
        self.world = world
        self.process = process
        self.hand = hand

    def with_own_connections(self) -> WireStore:
        """Return a store over another connection, for a scheduler's membership."""
        return WireStore(self.world, self.process, "member")

    @property
    def address(self) -> str:
        """Return the server's name in errors."""
        return "chaos"

    @property
    def several(self) -> bool:
        """Return whether some primaries may answer while others are away."""
        return self.world.primaries.several

    def server_runs(self, keys: Sequence[str]) -> dict[str, ServerRun]:
        """Return the run of each key's primary; a run without id while the primary does not answer."""
        if not self.several:
            return super().server_runs(keys)
        found: dict[str, ServerRun] = {}
        primaries = self.world.primaries
        owners = {key: primaries.of(key) for key in keys}
        for name in dict.fromkeys(owners.values()):
            try:
                self.world.wire.check_away(name)
                self.world.wire.ask(self.process)
                found[name] = ServerRun(primaries.run_ids[name])
            except RedisConnectionError:
                found[name] = ServerRun()
        return {key: found[name] for key, name in owners.items()}

    def load_scripts(
        self, also: Iterable[str] = (), scripts: Sequence[Script] = ALL_SCRIPTS
    ) -> None:
        """Load the schedule's scripts."""
        self.world.wire.load()

    def _send(
        self, calls: Sequence[Call[Any]], patience_s: float | None = None, each: bool = False
    ) -> list[Any]:
        return self.world.wire.send(self.process, self.hand, calls)
