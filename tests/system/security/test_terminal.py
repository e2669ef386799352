"""Nothing from the state drives a terminal or forges a line: no command and no log shows a control
character raw.
"""

import logging
import re
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import parsync_redis
from parsync_redis.cli import app
from parsync_redis.cli.common import make_client
from parsync_redis.model.printable import LOGGER_SUFFIXES, guard_logs, printable
from parsync_redis.store import Store
from parsync_redis.store.cluster import LAYOUT_VERSION
from parsync_redis.store.repair.losses import KEEP_S
from parsync_redis.store.repair.quarantine import quarantine
from tests.kit.driver import Driver

PACKAGE = Path(parsync_redis.__file__).parent
HOSTILE = "\x1b]0;own\x07\x1b[2J\x9b31m\u202e\u2066\x85\u2028\rx\nFORGED line\x7f\x00"
NUMBERS = count()
COMMANDS = [
    ["nodes"],
    ["nodes", "n1"],
    ["partitions"],
    ["schedulers"],
    ["tasks"],
    ["tasks", "--state", "dead"],
    ["tasks", "--sort", "run"],
    ["tasks", "--state", "any", "--name", "w*", "--older-than", "1s"],
    ["status", "wait"],
    ["demand"],
    ["names"],
    ["status", "waits"],
    ["status", "dies"],
    ["status", f"x{HOSTILE}"],
    ["cancel", f"x{HOSTILE}"],
    ["cancel", "gone"],
    ["dead", "list"],
    ["dead", "show", "dies"],
    ["dead", "requeue", "gone"],
    ["quarantine", "list"],
    ["quarantine", "show", "1"],
    ["doctor", "--audit"],
    ["purge", "--state", "dead", "--yes", "--name", "no such"],
    ["undrain", "n1"],
]


@pytest.fixture
def sound(server, monkeypatch) -> Store:
    """Return a cluster that has something for each command to show."""
    monkeypatch.setenv("PARSYNC_URL", server.url)
    monkeypatch.setenv("PARSYNC_CLUSTER", "shown")
    monkeypatch.setattr(make_client, "__defaults__", (0,))
    store = Store.from_url(server.url, "shown")
    run = store.run
    commands = store.commands
    drive = Driver(store)
    run(
        commands.configure(
            {
                "partitions": 1,
                "shards": 1,
                "gap_ms": 500,
                "lease_ms": 10_000,
                "scripts": LAYOUT_VERSION,
                "id": "5d41402abc4b2a76",
            }
        )
    )
    run(commands.renew_scheduler("s1", stats={"placed": 3}))
    drive.node("n1", 2, {"gpu": 1}, {"zone": "a"})
    run(commands.set_node(0, "n1", "drain", note="no deadline: a disk"))
    drive.bring("dead", "dies")
    drive.submit("waits")
    run(commands.set_reason([("work slots=1", "no node is free")]))
    # no two alike: once a process
    quarantine(store, f"who{HOSTILE}", f"why{HOSTILE}{next(NUMBERS)}", HOSTILE.encode())
    run(commands.record_loss("s1 submitted=2->1", KEEP_S))
    return store


def outputs() -> dict[str, str]:
    """Return the output of each command, as a table and as JSON, by the command's words."""
    runner = CliRunner()
    found = {}
    for words in COMMANDS:
        for more in ([], ["--json"]):
            result = runner.invoke(app, [*words, *more])
            found[" ".join([*words, *more])] = result.stdout + result.stderr
            unexpected = result.exception and not isinstance(result.exception, SystemExit)
            assert not unexpected, (words, result.exception)
    return found


def check(found: dict[str, str]) -> None:
    for words, text in found.items():
        raw = {c for c in text if not c.isprintable() and c != "\n"}
        assert not raw, (words, raw, text)
        assert not re.search("^FORGED", text, re.MULTILINE), (words, text)


def spoil(store: Store, key: str, field: bytes | None, at: int) -> bool:
    """Put the hostile text into a value or a name, and return whether it is there."""
    client: Any = store.client
    kind = client.type(key)
    if kind == b"hash" and field is not None:
        value = client.hget(key, field)
        text = value.decode(errors="replace")
        words = re.split(r"(?<=[ =:,])", text)
        at %= len(words)
        words[at] += HOSTILE
        client.hset(key, field, "".join(words))
        client.hset(key, field + HOSTILE.encode(), value)
    elif kind == b"zset":
        (member, score), *_ = client.zrange(key, 0, 0, withscores=True)
        client.zadd(key, {member + HOSTILE.encode(): score})
    else:
        return False
    return True


def test_no_command_shows_a_control_character_of_any_value_in_the_state(sound: Store) -> None:
    check(outputs())
    client: Any = sound.client
    keys = sorted(key.decode() for key in client.scan_iter("parsync:{shown*"))
    config = sound.keys.shared("config")
    before = {key: client.dump(key) for key in keys}
    for some in ([key for key in keys if key != config], [config]):
        for at in (0, 1, -1):
            spoiled = 0
            for key in some:
                fields = client.hkeys(key)[:9] if client.type(key) == b"hash" else [None]
                spoiled += sum(spoil(sound, key, field, at) for field in fields)
            assert spoiled > (20 if len(some) > 1 else 3)
            check(outputs())
            for key in keys:
                client.restore(key, 0, before[key], replace=True)


def test_a_hostile_name_and_reason_are_shown_as_escapes(sound: Store) -> None:
    notes = sound.keys.partition(0, "notes")
    sound.client.hset(notes, "n1", f"no deadline: {HOSTILE}")
    found = outputs()
    check(found)
    assert "\\x1b]0;own" in found["nodes"]
    assert "\\u001b]0;own" in found["nodes --json"]
    assert "who\\x1b" in found["quarantine list"]


def test_logs_show_names_and_exceptions_on_their_lines() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    log = logging.getLogger("parsync.leader")
    log.addHandler(handler)
    try:
        log.warning("node %s is down", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("unexpected: %s", HOSTILE)
    finally:
        log.removeHandler(handler)
    check({"log": stream.getvalue()})
    assert stream.getvalue().count("\\x1b]0;own") == 3


def test_each_of_our_loggers_is_guarded_and_no_listing_prints_by_itself() -> None:
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    names = {
        name
        for text in sources.values()
        for name in re.findall(r'getLogger\("(parsync[^"{]*)"\)', text)
    }
    assert names <= {f"parsync{name}" for name in LOGGER_SUFFIXES}
    guard_logs()
    assert len(logging.getLogger("parsync.leader").filters) == 1
    printing = {
        path.stem
        for path, text in sources.items()
        if path.parent.name == "cli" and re.search(r"(?<![.\w])print\(", text)
    }
    assert printing == {"app", "common"}, "the others print with `say`, which shows escapes"


def test_printable_text_is_as_it_was() -> None:
    assert printable("Grüße 東京 'x' \\n") == "Grüße 東京 'x' \\n"
    assert printable("a\tb\u200b") == "a\\tb\\u200b"
