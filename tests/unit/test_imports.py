"""Imports load little: the core has no Redis, and Lua files are read at first use."""

import inspect
import re
import sys
from functools import cached_property

import pytest

from parsync_redis.store.scripts.header import Header
from parsync_redis.store.scripts.scripts import Script
from parsync_redis.worker.node.lease import KEEPER_VERBS, LeaseKeeper
from tests.kit.waiting import run

WATCH = """
import sys
read = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith(".lua") and read.append(args[0]))
{lines}
print(len(read), *(name for name in sys.modules if name.partition(".")[0] == "redis"))
"""


def seen(lines: str) -> list[str]:
    """Return the number of Lua files that a new interpreter reads, and the modules of redis-py that it imports."""
    done = run(
        [sys.executable, "-c", WATCH.format(lines=lines)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_core_of_a_scheduler_imports_no_redis_and_reads_no_script():
    assert seen("import parsync_redis.scheduler.core.core") == ["0"]


@pytest.mark.parametrize(
    "module",
    ["parsync_redis.store", "parsync_redis.client", "parsync_redis.scheduler.process.loop"],
)
def test_an_import_reads_no_script(module: str):
    assert seen(f"import {module}")[0] == "0"


def test_a_script_reads_its_own_files_and_once():
    lines = (
        "from parsync_redis.store.scripts.calls import Commands\nfrom parsync_redis.wire.keys "
        "import Keys\n"
    )
    call = "Commands(Keys('demo')).configure({}).script.sha\n"
    once = int(seen(lines + call)[0])
    assert 0 < once <= 6
    assert int(seen(lines + call * 2)[0]) == once


def test_read_scripts_leaves_no_file_to_be_read_later():
    """A package that is upgraded under a running worker must not mix old bindings with
    new scripts.
    """
    lines = (
        "from parsync_redis.store.store import Store\nstore = "
        "Store.from_url('redis://127.0.0.1:1/0', 'demo')\n"
    )
    lines += (
        "store.read_scripts()\nseen = len(read)\nfrom parsync_redis.store.scripts.calls import "
        "ALL_SCRIPTS\n"
    )
    assert int(seen(lines)[0]) > 40
    assert (
        seen(lines + "assert all(script.sha for script in ALL_SCRIPTS) and len(read) == seen\n")[0]
        == seen(lines)[0]
    )


def test_read_scripts_leaves_nothing_to_be_made_later():
    """A thread that makes something once holds a lock, which a fork would copy for ever."""
    made_once = [
        *((Script, name) for name, value in vars(Script).items()),
        *((Header, name) for name, value in vars(Header).items()),
    ]
    names = {
        owner: [n for o, n in made_once if o is owner and isinstance(vars(o)[n], cached_property)]
        for owner in (Script, Header)
    }
    assert len(names[Script]) > 3
    assert names[Header]
    script = Script("submit")
    script.prepare()
    assert {*names[Script]} <= {*vars(script)}
    assert {*names[Header]} <= {*vars(script.header)}


def test_a_guard_puts_its_scripts_together_before_it_has_a_lease_to_keep():
    """A script takes 50 ms of CPU, which is a part of a short lease on a busy machine."""
    called = set(re.findall(r"commands\.(\w+)\(", inspect.getsource(LeaseKeeper)))
    assert called == set(KEEPER_VERBS)
    lines = (
        "from parsync_redis.store.store import Store\n"
        "from parsync_redis.store.scripts.calls import ALL_SCRIPTS\n"
        "from parsync_redis.worker.isolation.guarding import GUARD_VERBS\n"
        "store = Store.from_url('redis://127.0.0.1:1/0', 'demo')\n"
        "store.read_scripts(GUARD_VERBS)\n"
        "made = {script.verb for script in ALL_SCRIPTS if script.is_made}\n"
        "assert made == set(GUARD_VERBS), made\n"
    )
    assert int(seen(lines)[0]) > 20
