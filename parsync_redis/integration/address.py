"""The address of an app's broker as parsync's settings write it: the server that parsync uses unless told otherwise."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from kombu import Connection

from ..errors import InvalidInput
from ..model.address import SCHEME, as_redis, is_cluster, safe_url


def broker_address(connection: Connection) -> str | None:
    """Return the address of a kombu connection's broker as `PARSYNC_URL` would name it, None if it is not Redis.

    Raises InvalidInput if the address names Sentinels, but not the service they watch, or a Redis Cluster.
    """
    broker = str(connection.as_uri(include_password=True))
    if is_cluster(broker):
        raise InvalidInput(
            f"the app's broker is {safe_url(broker)}, but Celery cannot use a Redis Cluster as broker: "
            "name one server as the broker, and the cluster with Parsync(app, url=...) or PARSYNC_URL"
        )
    if not broker.startswith(SCHEME):
        return redis_url(broker)
    options = connection.transport_options or {}
    if not options.get("master_name"):
        raise InvalidInput(
            f"the app's broker is {safe_url(broker)}, but which service is not said: "
            "set broker_transport_options = {'master_name': ...}"
        )
    login = {
        f"sentinel_{key}": value
        for key, value in (options.get("sentinel_kwargs") or {}).items()
        if key in ("username", "password") and value
    }
    places = [str(place).partition("?")[0] for place in connection.alt or [broker]]
    return f"{';'.join(places)}?{urlencode({'service': options['master_name'], **login})}"


def redis_url(broker: str) -> str | None:
    """Return a kombu broker URL as redis-py reads it, None if the broker is not Redis."""
    if broker.startswith(("redis://", "rediss://", "valkey://", "valkeys://")):
        # Celery writes ssl_cert_reqs=CERT_NONE, as Python's ssl does
        return re.sub(r"(?<=[?&]ssl_cert_reqs=)CERT_(\w+)", lambda m: m[1].lower(), as_redis(broker.split(";")[0]))
    for prefix, scheme in (("redis+socket://", "unix://"), ("socket://", "unix://")):
        if broker.startswith(prefix):
            return scheme + broker.removeprefix(prefix).replace("virtual_host=", "db=")
    return None
