"""The store: runs calls on a server, reads records, and says clearly what is wrong with a server.

redis-py retries by itself; here it must not: whether a request whose reply was lost was executed is for the caller to
find out (every script answers "yours" to its repeat; see docs/journey-of-a-task.md).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ..errors import AccessDenied, BrokenContract, InvalidInput, ServerUnfit, ServerUnreachable
from ..model.ids import readable
from ..model.node import Lease, Node, read_nodes
from ..model.task import TaskState, TaskStatus
from ..wire.keys import Keys
from .calls import ALL, Call, Commands
from .losses import read_lines
from .sentinel import SCHEME, connect_service, parse_service, pool_again
from .server_errors import damage, denied, is_damage, is_denied, refusal, translate

T = TypeVar("T")
_PASSWORD_OPTION = re.compile(r"([?&;](?:ssl_|sentinel_)?password=)[^&;#]*")
OLDEST_REDIS, OLDEST_VALKEY = (7, 0), (7, 2)


def safe_url(url: str) -> str:
    """The URL without its passwords, also where it is no URL at all."""
    url = _PASSWORD_OPTION.sub(r"\1***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, credentials = head.partition("://")
    if not slashes or not scheme.isalpha():
        scheme, slashes, credentials = "", "", head
    user = credentials.partition(":")[0]
    return f"{scheme}{slashes}{user}:***@{tail}" if user else f"{scheme}{slashes}***@{tail}"


def as_redis(url: str) -> str:
    """A valkey:// or valkeys:// address as redis-py knows it; others as they are."""
    scheme, slashes, rest = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + slashes + rest


def connect(url: str, timeout_s: float = 5.0) -> "redis.Redis":
    """A client for the server at `url`: no retries of its own, time-outs on; raises InvalidInput for a bad URL."""
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    try:
        if url.startswith(SCHEME):
            return connect_service(parse_service(url), **options)
        return redis.Redis.from_url(as_redis(url), **options)
    except ValueError as error:
        why = "special characters in a password are written %XX" if "@" in url else error  # it may quote the password
        raise InvalidInput(f"server address {safe_url(url)!r} is not valid: {why}") from None


def explain_durability(info: Mapping[str, Any]) -> str:
    """What a crash of a server costs, by its INFO; '' if its append-only file is on."""
    if int(info.get("aof_enabled", 0)):
        return ""
    return "its append-only file is off: a crash loses all since its last snapshot; redis-cli CONFIG SET appendonly yes"


_PIECE = 1 << 16
"""Bytes that are sent at a time: each piece may take as long as the connection's time-out."""


def _pack(call: Call[Any]) -> bytes:
    """The call as it is sent; hiredis takes text, bytes and numbers."""
    words: Any = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
    return bytes(hiredis.pack_command(words))


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class Store:
    """The state of one cluster on one server. Calls come from `store.commands`."""

    def __init__(
        self, client: "redis.Redis", cluster: str, retention_s: int = 86_400, max_starts: int = 3, db: int = 0
    ) -> None:
        self.client = client
        self.keys = Keys(cluster, db)
        self.commands = Commands(self.keys, retention_s, max_starts)

    @classmethod
    def from_url(cls, url: str, cluster: str, retention_s: int = 86_400, max_starts: int = 3) -> "Store":
        """Connects lazily; `check_server` says whether the server will do."""
        client = connect(url)
        db = int(client.connection_pool.connection_kwargs.get("db") or 0)
        return cls(client, cluster, retention_s, max_starts, db)

    def again(self) -> "Store":
        """The same state over a connection of its own, for another thread."""
        mine = self.client.connection_pool
        if isinstance(mine, SentinelConnectionPool):
            pool: Any = pool_again(mine)
        else:
            pool = type(mine)(connection_class=mine.connection_class, **mine.connection_kwargs)
        return Store(
            redis.Redis(connection_pool=pool),
            self.keys.cluster,
            self.commands.retention_s,
            self.commands.max_starts,
            self.keys.db,
        )

    @property
    def address(self) -> str:
        """Where the server is, without its password."""
        pool = self.client.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            return str(pool.service_name)
        kwargs = pool.connection_kwargs
        return str(kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}")

    # -- scripts -----------------------------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        """Runs one call; raises ServerUnreachable or BrokenContract."""
        return cast(T, self.run_all([call])[0])

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Runs calls in order in one round trip and returns what each answers.

        Each call is atomic, all of them are not. If the server lacks a script, all are loaded and it is sent again.
        Raises ServerUnreachable (any of the calls may have been executed), or what the first error reply means: the
        call that it answers changed nothing.
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
                if isinstance(reply, ResponseError) and is_damage(reply) and self._repaired(calls[i]):
                    replies[i] = self._send([calls[i]])[0]
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, Exception):
                raise self._error(call.script.verb, reply) from None
        return [call.read(reply) for call, reply in zip(calls, replies, strict=True)]

    def _error(self, verb: str, reply: Exception) -> Exception:
        """What an error reply to a script means."""
        if is_damage(reply):
            return damage(verb, reply)
        if is_denied(reply):
            return denied(self.address, verb, reply)
        primary = self._primary() if isinstance(reply, ReadOnlyError) else ""
        return refusal(self.address, reply, primary) or BrokenContract(f"{verb}: {reply}")

    def _primary(self) -> str:
        """Whose replica the server is, '' if it does not tell. What is sent next goes over a new connection.

        Behind the same name there may be another server by then.
        """
        try:
            told = self.client.info("replication")
            self.client.connection_pool.disconnect()
        except (RedisError, OSError):
            return ""
        return f"{told['master_host']}:{told['master_port']}" if "master_host" in told else ""

    def _repaired(self, call: Call[Any]) -> bool:
        """Whether what a call met that cannot be was repaired, so that the call may be sent again."""
        from .quarantine import repair

        try:
            return call.script.verb not in ("repair_partition", "discard") and repair(self, call.keys)
        except AccessDenied:
            return False

    def load_scripts(self) -> None:
        """Loads every script, so that logins that may not load any can run theirs. AccessDenied if this is one."""
        try:
            with self.client.pipeline(transaction=False) as pipe:
                for script in ALL:
                    pipe.execute_command("SCRIPT LOAD", script.text)
                pipe.execute()
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def _load_missing(self) -> None:
        """Loads scripts that the server has not; a login that may not load them waits for a scheduler, which does."""
        try:
            self.load_scripts()
        except AccessDenied:
            raise ServerUnreachable(
                f"the server at {self.address} has not the scripts of this parsync, and this login may not load them: "
                "a scheduler of this version does"
            ) from None

    def _send(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """The reply of each, errors of the server among them; one write, without redis-py's pipeline around it."""
        pool = self.client.connection_pool
        connection: Any = pool.get_connection()
        try:
            data = b"".join(map(_pack, calls))
            connection.send_packed_command([data[at : at + _PIECE] for at in range(0, len(data), _PIECE)])
            return [_reply(connection) for _ in calls]
        except BaseException:
            connection.disconnect()  # what was not read is nobody's reply
            raise
        finally:
            pool.release(connection)

    # -- what people read --------------------------------------------------------------------------------------------

    def hash(self, key: str) -> dict[str, str]:
        """A small hash, as text; bytes that are not UTF-8 are escaped."""
        return {readable(k): readable(v) for k, v in cast(Mapping[bytes, bytes], self._read("hgetall", key)).items()}

    def _read(self, command: str, *args: Any, **options: Any) -> Any:
        try:
            return getattr(self.client, command)(*args, **options)
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def config(self) -> dict[str, str]:
        """The cluster's settings; {} before its first scheduler."""
        return self.hash(self.keys.shared("config"))

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """What is known of each task, in order; one round trip."""
        names = list(ids)
        try:
            with self.client.pipeline(transaction=False) as pipe:
                for id in names:
                    pipe.hmget(self.keys.task(id), _STATUS_FIELDS)
                rows = pipe.execute()
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        found = [
            TaskStatus.of(id, {f: readable(v) for f, v in zip(_STATUS_FIELDS, row, strict=True) if v is not None})
            for id, row in zip(names, rows, strict=True)
        ]
        return self._explain_gone(found) if any(task.state is TaskState.GONE for task in found) else found

    def _explain_gone(self, found: list[TaskStatus]) -> list[TaskStatus]:
        """The same; a task that is gone says so if the server is known to have lost writes."""
        losses = read_lines(self.hash(self.keys.shared("losses")))
        if not losses:
            return found
        why = f"it was never submitted, its record has expired, or the server lost it: {losses[0].text}"
        return [replace(task, why=why) if task.state is TaskState.GONE and not task.why else task for task in found]

    def states(self, ids: Sequence[str]) -> list[str]:
        """The state of each task as text, '' where nothing is known; one round trip."""
        try:
            with self.client.pipeline(transaction=False) as pipe:
                for id in ids:
                    pipe.hget(self.keys.task(id), "state")
                return [readable(state or b"") for state in pipe.execute()]
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def nodes(self, partition: int) -> dict[str, Node]:
        """The nodes of a partition by name; a record that cannot be read is left out."""
        return read_nodes(self._read("hgetall", self.keys.partition(partition, "nodes")))[0]

    def leases(self, partition: int, nodes: Iterable[Node], damaged: list[str] | None = None) -> list[Lease]:
        """The leases of these nodes; reads only their slots' fields.

        What is no lease goes to `damaged` instead, and a slot where lease and lead do not agree as well.
        """
        found: list[Lease] = []
        damaged = [] if damaged is None else damaged
        for node in nodes:
            before = len(found)
            fields = [f"{node.name}/{slot}" for slot in range(node.span)]  # MAX_SLOTS at most, read at one moment
            values = self._read("hmget", self.keys.partition(partition, "slots"), fields) if fields else []
            for slot, value in enumerate(values):
                try:
                    found += [Lease.of(node.name, slot, readable(value))] if value is not None else []
                except ValueError:
                    damaged.append(fields[slot])
            held = {(lease.task, lease.attempt, lease.slot) for lease in found[before:]}
            named = {(lease.task, lease.attempt, slot) for lease in found[before:] for slot in lease.slots}
            damaged += [f"{node.name}/{slot}" for _, _, slot in held ^ named]
        return found

    # -- the server --------------------------------------------------------------------------------------------------

    def run_id(self) -> str:
        """What tells this run of this server from every other; '' if it does not tell. Raises ServerUnreachable."""
        return str(self._read("info", "server").get("run_id", ""))

    def check_server(self) -> dict[str, Any]:
        """INFO of a server that will do; raises ServerUnreachable, or ServerUnfit saying what is wrong and the fix."""
        try:
            info = self.client.info("everything")
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None
        name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
        version = str(info.get("valkey_version" if name == "Valkey" else "redis_version", "0"))
        oldest = OLDEST_VALKEY if name == "Valkey" else OLDEST_REDIS
        if tuple(int(n) for n in version.split(".")[:2]) < oldest:
            raise ServerUnfit(
                f"the server at {self.address} is {name} {version}; parsync needs Redis 7.0 or Valkey 7.2, or newer"
            )
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            raise ServerUnfit(
                f"the server at {self.address} evicts keys (maxmemory-policy {policy}), which would lose tasks; "
                "set it to noeviction: redis-cli CONFIG SET maxmemory-policy noeviction"
            )
        return {**info, "name": name, "version": version}


_STATUS_FIELDS = [
    "state",
    "name",
    "attempt",
    "starts",
    "partition",
    "node",
    "slot",
    "scheduler",
    "needs",
    "priority",
    "strategy",
    "why",
    "cancel",
    "expires_ms",
    "history",
    "submitted_ms",
    "ready_ms",
    "taken_ms",
    "placed_ms",
    "started_ms",
    "finished_ms",
    "max_starts",
]
