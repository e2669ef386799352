"""What a worker offers as a node, by its flags, and whether it can be one; pure but for reading the app's settings."""

from __future__ import annotations

from typing import Any

from celery.concurrency.solo import TaskPool as SoloPool
from redis.connection import parse_url

from ..errors import InvalidInput
from ..model.ids import check_name
from ..model.needs import Bundle
from ..store.sentinel import SCHEME, parse_service
from ..store.store import safe_url
from .agent import NodeSpec
from .app import broker_address

FLAGS = ("parsync", "parsync_node", "parsync_slots", "parsync_score", "parsync_label", "parsync_resource")


def is_node(flags: dict[str, Any]) -> bool:
    """Whether any flag was given; a number may be 0, which is refused later, not ignored."""
    return any(value is not None and value is not False and value != () for value in flags.values())


def pairs(flag: str, words: Any) -> dict[str, str]:
    """NAME=VALUE words of a repeatable flag; raises InvalidInput."""
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(f"{flag} {word!r} is not valid: it must be NAME=VALUE")
        if name in found:
            raise InvalidInput(f"{flag} {word!r} is not valid: {name} was given before, as {found[name]!r}")
        found[name] = value
    return found


def node_spec(worker: Any, flags: dict[str, Any]) -> NodeSpec:
    """What the worker offers, by its flags; raises InvalidInput."""
    score = 1.0 if flags.get("parsync_score") is None else float(flags["parsync_score"])
    if not -1e9 < score < 1e9:
        raise InvalidInput(f"--parsync-score {score} is not valid: it must be a number between -1e9 and 1e9")
    concurrency = 1 if issubclass(worker.pool_cls, SoloPool) else worker.max_concurrency or worker.concurrency
    slots = concurrency if flags.get("parsync_slots") is None else flags["parsync_slots"]
    offer = Bundle.of(
        slots,
        pairs("--parsync-resource", flags.get("parsync_resource")),
        pairs("--parsync-label", flags.get("parsync_label")),
    )
    name = flags.get("parsync_node")
    return NodeSpec(check_name("node name", worker.hostname if name is None else name), offer, score)


def check_broker(app: Any, url: str) -> None:
    """A node's doorbells come over its broker: it must be parsync's own server, and queue names must be keys."""
    broker = broker_address(app.connection_for_read())
    if broker is None or not same_place(broker, url):
        raise InvalidInput(
            "a node's Celery broker must be the Redis server and database that parsync uses: "
            f"the broker is {safe_url(broker or str(app.conf.broker_read_url))}, parsync's server {safe_url(url)}"
        )
    if prefix := (app.conf.broker_transport_options or {}).get("global_keyprefix"):
        raise InvalidInput(f"broker_transport_options global_keyprefix={prefix!r} does not go with parsync: remove it")


def same_place(one: str, other: str) -> bool:
    """Whether two addresses mean one database of one server, or of one service of Sentinels."""
    watched = [url.startswith(SCHEME) for url in (one, other)]
    if all(watched):
        return parse_service(one).same_as(parse_service(other))
    return not any(watched) and place_of(one) == place_of(other)


def place_of(url: str) -> tuple[Any, ...]:
    """Which server and database an address means."""
    if url.startswith(SCHEME):
        service = parse_service(url)
        return service.name, ",".join(sorted(f"{host}:{port}" for host, port in service.sentinels)), service.db
    kwargs = parse_url(url)
    host = {"localhost": "127.0.0.1", "": "127.0.0.1"}.get(str(kwargs.get("host") or ""), kwargs.get("host"))
    return kwargs.get("path"), host, int(kwargs.get("port") or 6379), int(kwargs.get("db") or 0)
