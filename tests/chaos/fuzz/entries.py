"""The public entries: for each, a function that draws its input, and a function that feeds it.

A feed raises what the entry raises.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from celery import Celery
from typer.testing import CliRunner

from parsync_redis import Parsync, ParsyncClient
from parsync_redis.cli import app as cli
from parsync_redis.errors import ParsyncError
from parsync_redis.model.kind import Kind, KindLine
from parsync_redis.model.needs import Resources, parse_resources
from parsync_redis.model.node import Lease, Node, read_nodes
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.record import Record, TaskLine
from parsync_redis.model.status import TaskStatus
from parsync_redis.scheduler.process.listener import understand
from parsync_redis.security.acl import RightsOptions, user_line
from parsync_redis.security.acl_tables import Role
from parsync_redis.settings import Settings
from parsync_redis.store.repair.quarantine import QuarantineEntry
from parsync_redis.submission import ITEM_KEYS
from parsync_redis.wire.doorbell import read_doorbell
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.message import make_message

from . import values as v

OWN = (ParsyncError,)
PARSERS = (ParsyncError, ValueError)
"""Errors that a reader of a stored line may raise; its callers expect a ValueError."""

COMMANDS = (
    ["submit"],
    ["status"],
    ["tasks"],
    ["cancel"],
    ["nodes"],
    ["partitions"],
    ["schedulers"],
    ["drain"],
    ["undrain"],
    ["acl"],
    ["quarantine", "list"],
    ["quarantine", "show"],
    ["dead", "list"],
    ["dead", "show"],
    ["dead", "requeue"],
)
FLAGS = (
    "--json",
    "--slots",
    "--resource",
    "--require",
    "--priority",
    "--strategy",
    "--prefer",
    "--id",
    "--countdown",
    "--expires",
    "--kwargs",
    "--limit",
    "--state",
    "--cluster",
    "--role",
    "--queue",
    "--form",
    "--hash",
    "--config",
    "--help",
    "--nonsense",
)
LINES = (
    b"up inc=3 drain=0 first=0 span=4 score=9.5 slots=4 gpu=2 gpu_model:a100",
    b"a81f 1@17.s1.482913 p0 n1/0,4 inc=3 gpu=1 since=17",
    b"a81f 1@17 p0 n1/3 inc=3 since=17",
    b"host:1 parsync:{c}:x 3 why\nabc",
    b"slots=2 gpu=1 gpu_model:a100",
    b"proj.render slots=2 gpu=1 gpu_model:a100 latency",
    b"3 8121795630000001 8121795630000007 only node n1 fits: it is full",
    b"tick 1 2",
    b"freed 1 2 3",
    b"wake",
)


@dataclass(frozen=True, slots=True)
class FuzzedEntry:
    """A part of the product that takes input from outside, such as a method or a file.

    draw: makes an input.
    feed: gives the input to the product; nobody judges what it returns.
    may_raise: the errors by which the entry may refuse an input.
    share: the weight of the entry among all entries: cases are drawn by it.
    """

    draw: Callable[[Random], Any]
    feed: Callable[[Any], Any]
    may_raise: tuple[type[BaseException], ...] = OWN
    share: int = 10


def _item(rng: Random) -> Any:
    item = {
        "name": v.mostly(rng, lambda: "proj.render"),
        "args": v.mostly(rng, lambda: [1, "a"]),
        **v.needs(rng),
    }
    item |= {rng.choice(ITEM_KEYS): v.value(rng) for _ in range(rng.randrange(3))}
    return item if rng.random() < 0.9 else v.value(rng)


def _lines(line: bytes) -> None:
    shown = line.decode(errors="backslashreplace")
    reads: tuple[Callable[[], object], ...] = (
        lambda: Node.of("n1", shown),
        lambda: Lease.of("n1", 0, shown),
        lambda: parse_resources(shown),
        lambda: Kind.of(shown),
        lambda: KindLine.of(shown),
        lambda: TaskLine.of(shown),
        lambda: Place.of(shown),
    )
    for read in reads:
        with contextlib.suppress(ValueError):
            read()
    read_nodes({b"n1": line, line: line})
    understand(line, "wake")
    QuarantineEntry.of(line, 1.0)
    sound = [
        b"running",
        b"0@1 8121795630000001 17 17 - f slots=1",
        b"1@1.s1.0",
        b"",
        b"",
        b"",
        [b"history", b""],
    ]
    for at in range(6):
        TaskStatus.of(Record.of("a", 17, [*sound[:at], line, *sound[at + 1 :]]))
    TaskStatus.of(Record.of("a", 17, [*sound[:6], [b"history", line]]))


def _toml(text: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(text)
        Settings.load(file.name)


def _env(env: Mapping[str, str]) -> None:
    before = dict(os.environ)
    try:
        os.environ.update(env)
        Settings.load()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _environment(rng: Random) -> dict[str, str]:
    names = [f"PARSYNC_{name.upper()}" for name in Settings.model_fields]
    drawn = {rng.choice(names): v.text(rng) for _ in range(3)}
    return {name: text for name, text in drawn.items() if "\0" not in text and text.isprintable()}


def entries(client: ParsyncClient, url: str) -> dict[str, FuzzedEntry]:
    """Return every entry by name; those that need a server use this client's."""
    app = Celery("fuzz", broker=url, backend=None, set_as_current=False)
    Parsync(app, url=url, cluster=client.settings.cluster)

    @app.task(name="proj.render")
    def render(*args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def run_cli(words: list[str]) -> None:
        result = CliRunner().invoke(
            cli, words, env={"PARSYNC_URL": url, "PARSYNC_CLUSTER": client.settings.cluster}
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 1, 2), result.exit_code
        assert "Traceback" not in result.output

    def command(rng: Random) -> list[str]:
        more = [
            rng.choice(FLAGS) if rng.random() < 0.4 else v.text(rng)
            for _ in range(rng.randrange(5))
        ]
        return [*rng.choice(COMMANDS), *more]

    def many(items: Any) -> None:
        client.submit_many(items)

    return {
        "client.submit": FuzzedEntry(lambda r: [_item(r)], many, share=20),
        "client.submit_many": FuzzedEntry(
            lambda r: [_item(r) for _ in range(r.randrange(4))], many
        ),
        "client.status": FuzzedEntry(v.value, client.status),
        "client.statuses": FuzzedEntry(
            lambda r: [v.mostly(r, lambda: "a") for _ in range(3)], client.statuses
        ),
        "client.cancel": FuzzedEntry(v.value, client.cancel),
        "client.drain": FuzzedEntry(v.value, client.drain, share=5),
        "client.wait": FuzzedEntry(
            lambda r: [v.mostly(r, lambda: "gone")],
            lambda ids: client.wait(ids, timeout=0),
            share=5,
        ),
        "apply_async": FuzzedEntry(
            v.needs, lambda options: render.apply_async((1,), parsync=options), share=10
        ),
        "apply_async any": FuzzedEntry(
            v.value, lambda options: render.apply_async((1,), parsync=options or {}), share=5
        ),
        "options": FuzzedEntry(
            lambda r: v.mapping(r, ("slots", "require", "priority", "strategy", "prefer")),
            TaskOptions.of,
        ),
        "needs": FuzzedEntry(
            lambda r: [v.mostly(r, lambda: 1), {v.text(r): v.value(r)}, {v.text(r): v.value(r)}],
            lambda x: Resources.of(*x),
        ),
        "make_message": FuzzedEntry(
            lambda r: [v.mostly(r, lambda: [1]), v.mostly(r, dict), v.mapping(r, ITEM_KEYS[10:])],
            lambda x: make_message("a.b", x[0], x[1], "id", **{str(k): y for k, y in x[2].items()}),
        ),
        "open_envelope": FuzzedEntry(lambda r: v.mangled(r, v.MESSAGE), open_envelope),
        "doorbell": FuzzedEntry(lambda r: v.mangled(r, v.DOORBELL), read_doorbell, (ValueError,)),
        "stored lines": FuzzedEntry(lambda r: v.mangled(r, r.choice(LINES)), _lines, ()),
        "settings": FuzzedEntry(
            lambda r: v.mapping(r, tuple(Settings.model_fields)),
            lambda x: Settings.load(**{str(k): y for k, y in x.items()}),
            share=5,
        ),
        "environment": FuzzedEntry(_environment, _env, share=5),
        "toml": FuzzedEntry(
            lambda r: v.mangled(r, b'url = "redis://h:1/0"\npartitions = 8\ngap_s = 0.5\n'),
            _toml,
            share=5,
        ),
        "acl": FuzzedEntry(
            lambda r: [v.text(r), v.text(r)],
            lambda x: user_line(Role.WORKER, x[0], "", RightsOptions((x[1],))),
            share=3,
        ),
        "command line": FuzzedEntry(command, run_cli, share=3),
    }
