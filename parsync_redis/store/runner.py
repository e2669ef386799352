"""Run calls on a server, many in one round trip, and say clearly what is wrong with a server that does not run them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, TypeVar, cast

import hiredis
import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from ..errors import AccessDenied, BrokenContract, ServerUnreachable
from ..model.ids import readable
from ..wire.keys import Keys
from .calls import ALL, Call, Commands
from .connection import address_of, connect, copy_client, database_of
from .server_errors import damage, denied, is_damage, is_denied, refusal, translate

T = TypeVar("T")

_PIECE: Final = 1 << 16
"""Bytes that are sent at a time: the connection's time-out holds for each piece."""


class Runner:
    """Runs the calls of one cluster on one server; `commands` makes the calls. It repairs nothing: `Store` does."""

    def __init__(
        self, client: "redis.Redis", cluster: str, retention_s: int = 86_400, max_starts: int = 3, db: int = 0
    ) -> None:
        self.client = client
        self.keys = Keys(cluster, db)
        self.commands = Commands(self.keys, retention_s, max_starts)

    @classmethod
    def from_url(cls, url: str, cluster: str, retention_s: int = 86_400, max_starts: int = 3) -> Self:
        """Return one for the server at `url`; it connects when it is first used. Raises InvalidInput for a bad URL."""
        client = connect(url)
        return cls(client, cluster, retention_s, max_starts, database_of(client))

    def again(self) -> Self:
        """Return one for the same state with connections of its own, for another thread."""
        commands = self.commands
        client = copy_client(self.client)
        return type(self)(client, self.keys.cluster, commands.retention_s, commands.max_starts, self.keys.db)

    @property
    def address(self) -> str:
        """Where the server is, without its password."""
        return address_of(self.client)

    # -- scripts -----------------------------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        """Run one call; raises what `run_all` raises."""
        return cast(T, self.run_all([call])[0])

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run calls in order in one round trip and return what each answers.

        Each call is atomic, all of them together are not. If the server lacks a script, all are loaded and the call is
        sent again. Raises ServerUnreachable (any of the calls may have been executed), or what the first error reply
        means: the call that it answers changed nothing.
        """
        if not calls:
            return []
        try:
            replies = self._send(calls)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                self._load_missing()
                for i, reply in zip(missing, self._send([calls[i] for i in missing]), strict=True):
                    replies[i] = reply
            for i, reply in enumerate(replies):
                if isinstance(reply, ResponseError) and is_damage(reply) and self._repair(calls[i], str(reply)):
                    replies[i] = self._send([calls[i]])[0]
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, Exception):
                raise self._error(call.script.verb, reply) from None
        return [call.read(reply) for call, reply in zip(calls, replies, strict=True)]

    def _repair(self, call: Call[Any], told: str) -> bool:
        """Repair the damage that a call met, as the server told it. True if the call can be sent again."""
        return False

    def _error(self, verb: str, reply: Exception) -> Exception:
        """Return the exception for an error reply to a script."""
        if is_damage(reply):
            return damage(verb, reply)
        if isinstance(reply, NoScriptError):  # loaded just now, and flushed again
            return ServerUnreachable(f"the server at {self.address} has lost the script {verb} again")
        if is_denied(reply):
            return denied(self.address, verb, reply)
        primary = self._primary() if isinstance(reply, ReadOnlyError) else ""
        return refusal(self.address, reply, primary) or BrokenContract(f"{verb}: {reply}")

    def _primary(self) -> str:
        """Return the address of the primary that this replica follows, '' if it does not tell.

        Closes the connections: behind the same name there may be another server by now.
        """
        try:
            told = self.client.info("replication")
            self.client.connection_pool.disconnect()
        except (RedisError, OSError):
            return ""
        return f"{told['master_host']}:{told['master_port']}" if "master_host" in told else ""

    def read_scripts(self) -> None:
        """Read every script's file now, so that an upgrade of the package under a running process changes nothing."""
        for script in ALL:
            script.text  # noqa: B018 # it is kept

    def load_scripts(self) -> None:
        """Load every script, for logins that may run scripts but not load them. Raises AccessDenied if this is one."""
        self.pipe([("execute_command", "SCRIPT LOAD", script.text) for script in ALL])

    def _load_missing(self) -> None:
        """Load the scripts; raises ServerUnreachable if this login may not, because a scheduler will load them."""
        try:
            self.load_scripts()
        except AccessDenied:
            raise ServerUnreachable(
                f"the server at {self.address} has not the scripts of this parsync, and this login may not load them: "
                "a scheduler of this version does"
            ) from None

    def _send(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Send calls in one write, without redis-py's pipeline, and return their replies, error replies included."""
        pool = self.client.connection_pool
        connection: Any = pool.get_connection()
        try:
            data = b"".join(map(_pack, calls))
            connection.send_packed_command([data[at : at + _PIECE] for at in range(0, len(data), _PIECE)])
            return [_reply(connection) for _ in calls]
        except BaseException:
            connection.disconnect()  # replies that were not read must not answer the next request
            raise
        finally:
            pool.release(connection)

    # -- plain commands ----------------------------------------------------------------------------------------------

    def read(self, command: str, *args: Any) -> Any:
        """Run one plain command, by the name of redis-py's method; errors are those of errors.py."""
        try:
            return getattr(self.client, command)(*args)
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def pipe(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands, (redis-py method, arguments...), in one round trip, and return the replies."""
        try:
            with self.client.pipeline(transaction=False) as batch:
                for command, *args in commands:
                    getattr(batch, command)(*args)
                return batch.execute()
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def hash(self, key: str) -> dict[str, str]:
        """Return a small hash as text; bytes that are not UTF-8 are escaped."""
        return {readable(k): readable(v) for k, v in cast(Mapping[bytes, bytes], self.read("hgetall", key)).items()}


def _pack(call: Call[Any]) -> bytes:
    """Return a call as it is sent; hiredis takes text, bytes and numbers."""
    words: Any = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
    return bytes(hiredis.pack_command(words))


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
