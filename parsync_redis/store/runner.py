"""Run calls on a server or a cluster, many in one round trip; say what is wrong if a call fails."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Self, TypeVar, cast

import hiredis
import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from ..errors import AccessDenied, BrokenContract, ParsyncError, ServerUnreachable
from ..wire.keys import DEFAULT_SHARDS, DEFAULT_SHARDS_OF_SEVERAL, Keys, gate_of
from .reader import PROBE, Reader
from .scripts.calls import ALL_SCRIPTS, Call, Commands, join_parts, parts_of
from .scripts.scripts import Script
from .server.connection import BLOCKING, Kit, connect, copy_client, database_of
from .server.primaries import SEND_PIECE_BYTES
from .server.redis_cluster import ClusterClient
from .server.server_errors import damage, denied, is_damage, is_denied, refusal, translate

T = TypeVar("T")

MOVING_SLOT_PATIENCE_S: Final = 0.2
"""Seconds that `run_each` waits for a slot that is being moved."""


class Runner(Reader):
    """A reader that also runs the calls of one cluster; `commands` makes the calls.

    A Runner repairs no damage: its subclass `Store` does. before: a function that is called before
    calls are sent. If the function raises an exception, the calls are not sent.
    """

    def __init__(
        self,
        client: "redis.Redis",
        cluster: str,
        retention_s: int = 86_400,
        max_starts: int = 3,
        db: int = 0,
        shards: int = DEFAULT_SHARDS,
    ) -> None:
        super().__init__(client)
        self.keys = Keys(cluster, db, shards)
        self.commands = Commands(self.keys, retention_s, max_starts)
        self.before: Callable[[], object] = lambda: None

    @classmethod
    def from_url(
        cls,
        url: str,
        cluster: str,
        retention_s: int = 86_400,
        max_starts: int = 3,
        kit: Kit = BLOCKING,
    ) -> Self:
        """Return a runner for the server at `url`; the runner connects when it is first used.

        Raises InvalidInput for a bad URL.
        """
        client = connect(url, kit=kit)
        shards = DEFAULT_SHARDS_OF_SEVERAL if isinstance(client, ClusterClient) else DEFAULT_SHARDS
        return cls(client, cluster, retention_s, max_starts, database_of(client), shards)

    def with_own_connections(self) -> Self:
        """Return a runner for the same state with connections of its own, for another thread."""
        runner = type(self)(copy_client(self.client), self.keys.cluster, db=self.keys.db)
        # Shared: what one runner learns of the cluster, its copies know.
        runner.keys = self.keys
        runner.commands = self.commands
        return runner

    # -- scripts -----------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        """Run one call and return its answer; raises what `run_all` raises."""
        return cast(T, self.run_all([call])[0])

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run calls in one round trip, and return the answer of each.

        Calls on one server run in order. Each call is atomic, all of them together are not. If the
        server lacks a script, the script is loaded and the call is sent again. Raises
        ServerUnreachable (any of the calls may have been executed), or the meaning of the first
        error reply: the call of that reply changed nothing.
        """
        parts = parts_of(calls)
        replies = self._replies(parts)
        for call, reply in zip(parts, replies, strict=True):
            if isinstance(reply, Exception):
                raise self._error(call, reply) from None
        return join_parts(
            calls, [call.read(reply) for call, reply in zip(parts, replies, strict=True)]
        )

    def run_each(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run calls as `run_all` does, and return the error of a failed call as its answer.

        On a cluster, a primary that is away fails its own calls only. The calls of other primaries
        wait for it at most a fifth of a connection's time-out, and `MOVING_SLOT_PATIENCE_S` for a
        slot that is being moved.
        """
        parts = parts_of(calls)
        try:
            replies = self._replies(parts, patience_s=MOVING_SLOT_PATIENCE_S, impatient=True)
        except ParsyncError as error:
            return [error] * len(calls)
        return join_parts(
            calls, [self._answer(call, reply) for call, reply in zip(parts, replies, strict=True)]
        )

    def _answer(self, call: Call[Any], reply: Any) -> Any:
        """Return the answer in a reply, or its error.

        An unreadable reply is damage that this call met, and does not fail the other calls.
        """
        try:
            return self._error(call, reply) if isinstance(reply, Exception) else call.read(reply)
        except ValueError as error:
            return error

    def _replies(
        self, calls: Sequence[Call[Any]], patience_s: float | None = None, impatient: bool = False
    ) -> list[Any]:
        """Return the reply of each call, or its error; load missing scripts, and repair damage."""
        if not calls:
            return []
        self.before()
        try:
            replies = self._send(calls, patience_s, impatient)
            unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:
                repeated = self._load_and_send([calls[i] for i in unknown])
                for i, reply in zip(unknown, repeated, strict=True):
                    replies[i] = reply
            for i, reply in enumerate(replies):
                if is_damage(reply) and self._repair(calls[i], str(reply)):
                    replies[i] = self._send([calls[i]])[0]
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        return replies

    def _load_and_send(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Load the scripts that these calls lack, and send the calls again.

        If that fails, the error is the reply to each of the calls.
        """
        try:
            self._load_missing(calls)
            return self._send(calls)
        except (ParsyncError, RedisError, OSError) as error:
            return [translate(self.address, error)] * len(calls)

    def _repair(self, call: Call[Any], message: str) -> bool:
        """Repair the damage that a call met; return True if the call can be sent again.

        message: the server's error reply.
        """
        return False

    def _error(self, call: Call[Any], reply: Exception) -> Exception:
        """Return the exception for an error reply to a script."""
        verb = call.script.verb
        if isinstance(reply, ParsyncError):
            return reply
        if is_damage(reply):
            return damage(verb, reply)
        if isinstance(reply, NoScriptError):  # It was loaded just now, and flushed again.
            return ServerUnreachable(
                f"the server at {self.address} has lost the script {verb} again"
            )
        if is_denied(reply):
            return denied(self.address, verb, reply)
        primary = self._primary() if isinstance(reply, ReadOnlyError) else ""
        return refusal(self.address, reply, primary) or BrokenContract(f"{verb}: {reply}")

    def _primary(self) -> str:
        """Return the address of the primary that this replica follows, '' if unknown.

        Closes the connections, because another server may have the same name by now.
        """
        if isinstance(self.client, ClusterClient):
            return ""
        try:
            replication = self.client.info("replication")
            self.client.connection_pool.disconnect()
        except (RedisError, OSError):
            return ""
        return (
            f"{replication['master_host']}:{replication['master_port']}"
            if "master_host" in replication
            else ""
        )

    def read_scripts(self, verbs: Collection[str] | None = None) -> None:
        """Read these scripts now, by default all, and put them together.

        So an upgrade of the package under a running process does not change these scripts, their
        calls wait for no file, and no thread makes them while another thread forks.
        """
        for script in ALL_SCRIPTS:
            if verbs is None or script.verb in verbs:
                script.prepare()

    def load_scripts(
        self, also: Iterable[str] = (), scripts: Sequence[Script] = ALL_SCRIPTS
    ) -> None:
        """Load scripts into every server, for logins that may run scripts but not load them.

        A primary that is away is left out: a process that finds the primary without scripts loads
        them. also: see `servers`. Raises AccessDenied if this login may not load scripts.
        """
        texts = [PROBE, *(script.text for script in scripts)]
        answers = self.ask_servers(
            [("execute_command", "SCRIPT LOAD", text) for text in texts], also
        )
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        for error in errors:
            if len(errors) == len(answers) or not isinstance(error, ServerUnreachable):
                raise error

    def _load_missing(self, calls: Sequence[Call[Any]]) -> None:
        """Load the scripts of these calls, also on the servers that lack some.

        During a failover, the map of slots may still lack these servers. The scripts that this
        process has put together are loaded too. The others are left out: putting them together
        takes half a second of CPU, and a guard has a lease to renew. A scheduler has all scripts.
        Raises ServerUnreachable if this login may not load scripts, because a scheduler will load
        them.
        """
        places = {self.place_of(call.keys[0]) for call in calls}
        called = {call.script.verb for call in calls}
        scripts = [script for script in ALL_SCRIPTS if script.is_made or script.verb in called]
        try:
            self.load_scripts((place for place in places if place), scripts)
        except AccessDenied:
            raise ServerUnreachable(
                f"the server at {self.address} has not the scripts of this parsync, and this login "
                "may not load them: a scheduler of this version does"
            ) from None

    def _send(
        self, calls: Sequence[Call[Any]], patience_s: float | None = None, impatient: bool = False
    ) -> list[Any]:
        """Send calls in one write a server; return replies and error replies.

        redis-py's pipeline takes longer.
        """
        if isinstance(self.client, ClusterClient):
            packed = [(call.keys[0], _pack(call, [gate_of(call.keys[0])])) for call in calls]
            return self.client.exchange(packed, patience_s, impatient)
        pool = self.client.connection_pool
        connection: Any = pool.get_connection()
        try:
            data = b"".join(map(_pack, calls))
            connection.send_packed_command(
                [
                    data[start : start + SEND_PIECE_BYTES]
                    for start in range(0, len(data), SEND_PIECE_BYTES)
                ]
            )
            return [_reply(connection) for _ in calls]
        except BaseException:
            connection.disconnect()  # An unread reply must not answer the next request.
            raise
        finally:
            pool.release(connection)


def _pack(call: Call[Any], gate: Sequence[str] = ()) -> bytes:
    """Return a call as it is sent; hiredis takes text, bytes and numbers."""
    words: Any = (
        "EVALSHA",
        call.script.sha,
        len(call.keys) + len(gate),
        *call.keys,
        *gate,
        *call.args,
    )
    return bytes(hiredis.pack_command(words))


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
