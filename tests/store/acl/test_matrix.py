"""Each role x each command of the server: what it may do to which keys and channels is in
matrix.txt, and nothing else.

matrix.txt holds the commands that the oldest server has that we support, Redis 7.0; one that a
later server has besides must be refused to every role. PARSYNC_TEST_WRITE_DOCS=1 writes the file
anew (on Redis 7.0).
"""

from functools import cache
from pathlib import Path

import pytest

from parsync_redis.security.acl_tables import Role
from parsync_redis.wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS, Keys, gate_of
from tests.kit.documents import WRITE
from tests.kit.logins import CLUSTER, Guarded

GOLDEN = Path(__file__).with_name("matrix.txt")
KEYS = Keys(CLUSTER)
KINDS = {
    **{f"q:{kind}": KEYS.queue(kind) for kind in QUEUE_KINDS},
    "q:extra": KEYS.extra("t1"),
    "q:pending": KEYS.pending("work slots=1"),
    **{f"p:{kind}": KEYS.partition(3, kind) for kind in PARTITION_KINDS},
    "p:inbox": KEYS.inbox(3, "n1"),
    **{f":{kind}": KEYS.shared(kind) for kind in CLUSTER_KINDS},
    ":stats": KEYS.stats("s1"),
    ":gate": gate_of(KEYS.shared("config")),
    "queue": "celery",
    "queue-high": "celery\x06\x169",
    "result": "celery-task-meta-t1",
    "group": "celery-taskset-meta-g1.j",
    "unacked": "unacked",
    "unacked_index": "unacked_index",
    "unacked_mutex": "unacked_mutex",
    "binding": "_kombu.binding.celery",
    "deadlines": "_kombu.binding_deadlines",
    "pidbox": "n1@host.celery.pidbox",
    "reply": "id.reply.celery.pidbox",
    "events": "celeryev.id",
}
FOREIGN = {
    "another cluster": "parsync:{other:q0}:tasks",
    "another cluster's slots": "parsync:{other:p3}:slots",
    "a cluster whose name begins alike": "parsync:{guarded2:q0}:tasks",
    "a cluster whose name ends alike": "parsync:{unguarded:p3}:slots",
    "another prefix": "somebody:guarded:p3:slots",
    "no prefix": "session:1",
    "another queue": "celery2",
    "a queue that begins alike": "celeryx",
    "a key that holds the prefix": "x:parsync:{guarded:p3}:slots",
}
CHANNELS = {
    "tick": KEYS.tick,
    "wake:s1": f"{KEYS.wakes()}:s1",
    "freed:s1": f"{KEYS.frees(3)}:s1",
    "result": "celery-task-meta-t1",
    "pidbox": "/0.celery.pidbox",
    "event": "/0.celeryev/worker.heartbeat",
    "events": "/0.celeryev/worker.*",
}
FOREIGN_CHANNELS = (
    "parsync:{other}:tick",
    "parsync:{guarded}:tock",
    "parsync:{other:q0}:wake@0:s1",
    "parsync:{guarded:q0}:wake@1:s1",
    "/1.celery.pidbox",
    "news",
    "*",
    "__keyspace@0__:*",
)
NUMBERED = {
    "eval": 2,
    "eval_ro": 2,
    "evalsha": 2,
    "evalsha_ro": 2,
    "fcall": 2,
    "fcall_ro": 2,
    "zunion": 1,
    "zinter": 1,
    "zdiff": 1,
    "sintercard": 1,
    "zintercard": 1,
    "lmpop": 1,
    "zmpop": 1,
    "blmpop": 2,
    "bzmpop": 2,
}
"""Commands that say how many keys follow, and the position of that number."""


def calls(guarded, command, value):
    """Return a command with one key or channel, if it takes any; with the arguments that it needs
    at least.
    """
    arity, first = facts(guarded, command)
    words = command.split("|")
    if command in ("publish", "spublish"):
        return [*words, value, "message"]
    if command in (
        "subscribe",
        "psubscribe",
        "ssubscribe",
        "unsubscribe",
        "punsubscribe",
        "sunsubscribe",
    ):
        return [*words, value]
    if command in NUMBERED:
        at = NUMBERED[command]
        return (
            [*words, *["1"] * at, value, "LEFT", "1"]
            if "mpop" in command
            else [*words, *["1"] * at, value]
        )
    if not first:
        return None
    args = ["1"] * (max(abs(arity), first + 1) - len(words))
    args[first - len(words)] = value
    return [*words, *args]


@cache
def facts(guarded, command):
    """Return (arity, first key) of a command."""
    rows = guarded.admin.execute_command("COMMAND INFO", command)
    row = next(iter(rows.values())) if isinstance(rows, dict) else rows[0]
    if isinstance(row, dict):
        return row["arity"], row["first_key_pos"]
    return row[1], row[3]


def every_command(guarded):
    """Return the commands and their subcommands; a container by itself is none."""
    found = []
    for name, row in guarded.admin.execute_command("COMMAND").items():
        subs = [
            sub[0].decode() if isinstance(sub[0], bytes) else sub[0] for sub in row["subcommands"]
        ]
        found += subs or [name]
    return sorted(name.lower() for name in found)


def may(guarded, role, command):
    """Return the kinds of keys on which the role may use the command; 'yes' where it names no key,
    '-' for none.
    """
    arity, _ = facts(guarded, command)
    words = command.split("|")
    channel = command.endswith(("publish", "subscribe"))
    things = CHANNELS if channel else KINDS
    if calls(guarded, command, "x") is None:
        return "-" if guarded.dry_run(role, *words, *["1"] * (abs(arity) - len(words))) else "yes"
    allowed = [
        word
        for word, value in things.items()
        if not guarded.dry_run(role, *calls(guarded, command, value))
    ]
    return " ".join(allowed) or "-"


def rows(guarded, names):
    for name in names:
        cells: dict[Role, str] = {
            role: may(guarded, role, name) for role in Role if role is not Role.SERVE
        }
        nobody = set(cells.values()) == {"-"}
        cells[Role.SERVE] = (
            "-" if nobody else may(guarded, Role.SERVE, name)
        )  # other roles may do all that this role may, see test_tables.py
        if set(cells.values()) == {"-"}:
            yield f"{name}: -"
        else:
            yield from (f"{name} {role}: {cell}" for role, cell in cells.items())


def golden():
    return [
        line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]


def test_each_role_may_do_with_each_command_what_the_golden_file_says(guarded: Guarded):
    names = every_command(guarded)
    if WRITE:
        head = (
            "# What each role may do with each command of Redis 7.0, by ACL DRYRUN; see "
            "test_matrix.py.\n"
        )
        GOLDEN.write_text(head + "\n".join(rows(guarded, names)) + "\n", encoding="utf-8")
    known = dict.fromkeys(line.split(":")[0].split()[0] for line in golden())
    assert len(known) > 300
    assert list(rows(guarded, [name for name in known if name in names])) == [
        line for line in golden() if line.split(":")[0].split()[0] in names
    ]
    for name in names:
        if name not in known:
            assert {may(guarded, role, name) for role in Role} == {"-"}, (
                f"{name} is newer than the golden file"
            )


@pytest.mark.parametrize("role", list(Role))
def test_no_command_reaches_a_key_outside_the_cluster_and_its_celery(guarded: Guarded, role: Role):
    for name in every_command(guarded):
        if name.endswith(("publish", "subscribe")) or calls(guarded, name, "x") is None:
            continue
        for what, key in FOREIGN.items():
            assert guarded.dry_run(role, *calls(guarded, name, key)), f"{role} may {name} {what}"


@pytest.mark.parametrize("role", list(Role))
def test_no_role_hears_or_speaks_on_a_foreign_channel(guarded: Guarded, role: Role):
    for name in ("publish", "subscribe", "psubscribe", "ssubscribe", "spublish"):
        for channel in FOREIGN_CHANNELS:
            assert guarded.dry_run(role, *calls(guarded, name, channel)), (
                f"{role} may {name} {channel}"
            )


@pytest.mark.parametrize("role", list(Role))
def test_no_role_runs_dangerous_commands(guarded: Guarded, role: Role):
    dangerous = (
        "eval x 0",
        "eval_ro x 0",
        "function load x",
        "fcall x 0",
        "script flush",
        "script kill",
        "config get x",
        "config set x y",
        "keys *",
        "scan 0",
        "dbsize",
        "randomkey",
        "flushall",
        "flushdb",
        "shutdown",
        "debug x",
        "module list",
        "monitor",
        "client list",
        "client kill x",
        "acl list",
        "acl whoami",
        "save",
        "bgsave",
        "replicaof no one",
        "migrate h 1 k 0 1",
        "restore k 0 x",
        "dump k",
        "cluster reset",
        "swapdb 0 1",
        "slowlog get",
        "latency doctor",
        "memory doctor",
        "command count",
        "object help",
    )
    for words in dangerous:
        assert guarded.dry_run(role, *words.split()), f"{role} may {words}"


def test_a_viewer_can_change_nothing(guarded: Guarded):
    for name in every_command(guarded):
        row = guarded.admin.execute_command("COMMAND INFO", name)
        flags = next(iter(row.values()))["flags"] if isinstance(row, dict) else row[0][2]
        if name == "evalsha":  # a script may do what its caller may
            continue
        if {"write", b"write"} & set(flags) or name in ("publish", "script|load"):
            assert may(guarded, Role.VIEWER, name) == "-", name


def test_only_a_scheduler_can_take_a_slot_and_put_work_in_an_inbox_of_a_held_one(guarded: Guarded):
    slots = KEYS.partition(3, "slots")
    assert not guarded.dry_run(Role.SCHEDULER, "hset", slots, "n1/0", "lease")
    for role in (Role.CLIENT, Role.WORKER, Role.VIEWER):
        assert guarded.dry_run(role, "hset", slots, "n1/0", "lease")
    for role in (Role.CLIENT, Role.VIEWER):
        assert guarded.dry_run(role, "evalsha", "x", "1", slots)
        assert guarded.dry_run(role, "lpush", KEYS.inbox(3, "n1"), "doorbell")
        assert guarded.dry_run(role, "setbit", KEYS.partition(3, "free"), "0", "0")
    assert not guarded.dry_run(Role.CLIENT, "evalsha", "x", "1", KEYS.pending("work slots=1"))


def test_client_and_viewer_logins_cannot_load_lua(guarded: Guarded):
    for role in (Role.CLIENT, Role.VIEWER):
        assert guarded.dry_run(role, "script", "load", "return 1")
    for role in (Role.WORKER, Role.SCHEDULER):
        assert not guarded.dry_run(role, "script", "load", "return 1"), "docs/security.md says so"
