"""Servers on which the roles of a cluster have their logins, as `parsync acl` prints them."""

import hashlib

import redis

from parsync_redis.security.acl import RightsOptions, user_line
from parsync_redis.security.acl_tables import Role
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster

CLUSTER = "guarded"


class Guarded:
    """A server with logins; `admin` may do everything, the default user nothing.

    primaries: of a cluster, if not 0.
    """

    def __init__(
        self, program: str, options: RightsOptions | None = None, primaries: int = 0
    ) -> None:
        self._running = (
            EmbeddedCluster(primaries, program=program) if primaries else EmbeddedServer(program)
        )
        servers = (
            self._running.servers if isinstance(self._running, EmbeddedCluster) else [self._running]
        )
        self.server = servers[0]
        for server in servers:
            with redis.Redis(port=server.port) as first:
                first.execute_command(
                    "ACL", "SETUSER", "admin", "on", ">pw-admin", "~*", "&*", "+@all"
                )
                for role in Role:
                    self.login(first, role, options)
                first.execute_command("ACL", "SETUSER", "default", "off")
        self.admins = [
            redis.Redis(port=one.port, username="admin", password="pw-admin") for one in servers
        ]
        self.admin = self.admins[0]

    @staticmethod
    def login(client: redis.Redis, role: Role, options: RightsOptions | None = None) -> None:
        """Make the login of a role."""
        sha256 = hashlib.sha256(f"pw-{role}".encode()).hexdigest()
        name, *words = rules(user_line(role, CLUSTER, sha256, options))
        client.execute_command("ACL", "SETUSER", name, *words)

    def url(self, role: str) -> str:
        """Return the address with the login of a role."""
        return self.address(f"{role}:pw-{role}")

    def address(self, login: str) -> str:
        """Return the address with a login of the cluster, with or without its password."""
        scheme, _, place = self._running.url.partition("://")
        return f"{scheme}://{CLUSTER}-{login}@{place}"

    def denials(self) -> list[tuple[str, str]]:
        """Return the denials of each login, except of CLIENT SETINFO: redis-py tries it, and Redis
        7.0 does not have it.
        """
        denied = [
            entry for admin in self.admins for entry in admin.execute_command("ACL", "LOG", 1000)
        ]
        pairs = {(entry[b"username"].decode(), entry[b"object"].decode()) for entry in denied}
        return sorted((who, what) for who, what in pairs if what != "client|setinfo")

    def dry_run(self, role: Role, *words: str) -> str:
        """Return '' if the role may run this command, else the server's refusal."""
        reply = self.admin.execute_command("ACL", "DRYRUN", f"{CLUSTER}-{role}", *words)
        return "" if reply == b"OK" else reply.decode()

    def stop(self) -> None:
        """Close the connections and stop the server."""
        for admin in self.admins:
            admin.close()
        self._running.stop()


def rules(line: str) -> list[str]:
    """Return the words of a login's line; a group in parentheses counts as one word."""
    words: list[str] = []
    for word in line.split():
        if words and words[-1].startswith("(") and not words[-1].endswith(")"):
            words[-1] += " " + word
        else:
            words.append(word)
    return words
