"""Run calls on a server or a cluster, many in one round trip, and say clearly what is wrong if they
are not run.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeVar, cast

import hiredis
import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from ..errors import AccessDenied, BrokenContract, ParsyncError, ServerUnreachable
from ..wire.keys import DEFAULT_SHARDS, DEFAULT_SHARDS_OF_SEVERAL, Keys, gate_of
from .reader import PROBE, Reader
from .scripts.calls import ALL, Call, Commands, join_parts, parts_of
from .server.connection import BLOCKING, Kit, connect, copy_client, database_of
from .server.primaries import PIECE
from .server.redis_cluster import ClusterClient
from .server.server_errors import damage, denied, is_damage, is_denied, refusal, translate

T = TypeVar("T")

PATIENCE_S: Final = 0.2
"""How long calls that must not wait for each other wait for a slot that is being moved."""


class Runner(Reader):
    """Runs the calls of one cluster; `commands` makes the calls.

    It repairs nothing: `Store` does.
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
        # called before calls are sent; may raise to keep them back
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
        """Return one for the server at `url`; it connects when it is first used.

        Raises InvalidInput for a bad URL.
        """
        client = connect(url, kit=kit)
        shards = DEFAULT_SHARDS_OF_SEVERAL if isinstance(client, ClusterClient) else DEFAULT_SHARDS
        return cls(client, cluster, retention_s, max_starts, database_of(client), shards)

    def again(self) -> Self:
        """Return one for the same state with connections of its own, for another thread."""
        made = type(self)(copy_client(self.client), self.keys.cluster, db=self.keys.db)
        # the same: what one learns of the cluster, all know
        made.keys = self.keys
        made.commands = self.commands
        return made

    # -- scripts -----------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        """Run one call; raises what `run_all` raises."""
        return cast(T, self.run_all([call])[0])

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run calls in one round trip and return what each answers; in order those on one server.

        Each call is atomic, all of them together are not. If the server lacks a script, all are
        loaded and the call is sent again. Raises ServerUnreachable (any of the calls may have been
        executed), or what the first error reply means: the call that it answers changed nothing.
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
        """Run calls as `run_all` does, and return the error of each that fails in the place of its
        answer.

        Of a cluster, a primary that is away fails its own calls only. The others wait for it at
        most a fifth of a connection's time-out, and `PATIENCE_S` for a slot that is being moved.
        """
        parts = parts_of(calls)
        try:
            replies = self._replies(parts, patience_s=PATIENCE_S, each=True)
        except ParsyncError as error:
            return [error] * len(calls)
        return join_parts(
            calls, [self._answer(call, reply) for call, reply in zip(parts, replies, strict=True)]
        )

    def _answer(self, call: Call[Any], reply: Any) -> Any:
        """Return what a reply says, or its error; a reply that cannot be read is damage of this
        call only.
        """
        try:
            return self._error(call, reply) if isinstance(reply, Exception) else call.read(reply)
        except ValueError as error:
            return error

    def _replies(
        self, calls: Sequence[Call[Any]], patience_s: float | None = None, each: bool = False
    ) -> list[Any]:
        """Return the reply of each call, or its error; load scripts that are missing, and repair
        damage.
        """
        if not calls:
            return []
        self.before()
        try:
            replies = self._send(calls, patience_s, each)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                for i, reply in zip(
                    missing, self._load_and_send([calls[i] for i in missing]), strict=True
                ):
                    replies[i] = reply
            for i, reply in enumerate(replies):
                if (
                    isinstance(reply, ResponseError)
                    and is_damage(reply)
                    and self._repair(calls[i], str(reply))
                ):
                    replies[i] = self._send([calls[i]])[0]
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        return replies

    def _load_and_send(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Load the scripts that these calls lack, and send the calls again; an error is the answer
        to each of them.
        """
        try:
            self._load_missing({self.place_of(call.keys[0]) for call in calls})
            return self._send(calls)
        except (ParsyncError, RedisError, OSError) as error:
            return [translate(self.address, error)] * len(calls)

    def _repair(self, call: Call[Any], told: str) -> bool:
        """Repair the damage that a call met, as the server told it.

        True if the call can be sent again.
        """
        return False

    def _error(self, call: Call[Any], reply: Exception) -> Exception:
        """Return the exception for an error reply to a script."""
        verb = call.script.verb
        if isinstance(reply, ParsyncError):
            return reply
        if is_damage(reply):
            return damage(verb, reply)
        if isinstance(reply, NoScriptError):  # loaded just now, and flushed again
            return ServerUnreachable(
                f"the server at {self.address} has lost the script {verb} again"
            )
        if is_denied(reply):
            return denied(self.address, verb, reply)
        primary = self._primary() if isinstance(reply, ReadOnlyError) else ""
        return refusal(self.address, reply, primary) or BrokenContract(f"{verb}: {reply}")

    def _primary(self) -> str:
        """Return the address of the primary that this replica follows, '' if it does not tell.

        Closes the connections: behind the same name there may be another server by now.
        """
        if isinstance(self.client, ClusterClient):
            return ""
        try:
            told = self.client.info("replication")
            self.client.connection_pool.disconnect()
        except (RedisError, OSError):
            return ""
        return f"{told['master_host']}:{told['master_port']}" if "master_host" in told else ""

    def read_scripts(self) -> None:
        """Read every script's file now, so that an upgrade of the package under a running process
        changes nothing.
        """
        for script in ALL:
            script.text  # noqa: B018 # it is kept

    def load_scripts(self, also: Iterable[str] = ()) -> None:
        """Load every script, for logins that may run scripts but not load them.

        Raises AccessDenied if this is one.

        A primary of a cluster that is away is left out: who finds it without scripts loads them.
        also: see `servers`.
        """
        answers = self.ask_servers(
            [("execute_command", "SCRIPT LOAD", text) for text in (PROBE, *(s.text for s in ALL))],
            also,
        )
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        for error in errors:
            if len(errors) == len(answers) or not isinstance(error, ServerUnreachable):
                raise error

    def _load_missing(self, places: Iterable[str]) -> None:
        """Load the scripts; raises ServerUnreachable if this login may not, because a scheduler
        will load them.

        places: the servers that lack one. In a failover others may still tell a map without them.
        """
        try:
            self.load_scripts(place for place in places if place)
        except AccessDenied:
            raise ServerUnreachable(
                f"the server at {self.address} has not the scripts of this parsync, and this login "
                "may not load them: "
                "a scheduler of this version does"
            ) from None

    def _send(
        self, calls: Sequence[Call[Any]], patience_s: float | None = None, each: bool = False
    ) -> list[Any]:
        """Send calls in one write a server, without redis-py's pipeline; return their replies, also
        error replies.
        """
        if isinstance(self.client, ClusterClient):
            packed = [(call.keys[0], _pack(call, [gate_of(call.keys[0])])) for call in calls]
            return self.client.exchange(packed, patience_s, each)
        pool = self.client.connection_pool
        connection: Any = pool.get_connection()
        try:
            data = b"".join(map(_pack, calls))
            connection.send_packed_command(
                [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
            )
            return [_reply(connection) for _ in calls]
        except BaseException:
            connection.disconnect()  # replies that were not read must not answer the next request
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
