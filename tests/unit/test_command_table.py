"""The table of commands agrees with the commands, and a command imports no more than it needs."""

import re
import sys
from importlib import import_module

import pytest
import typer

from parsync_redis.cli.app import COMMANDS, load
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.lua.driver import Driver
from tests.offenders import none_wrong
from tests.reaper import marked
from tests.waiting import run

NEVER = {"celery", "kombu", "numpy", "matplotlib"} | {
    f"parsync_redis.{part}" for part in ("scheduler", "worker", "integration", "demo", "lab")
}
"""Modules that a command which reads a cluster does not need."""

HELP_NEVER = NEVER | {
    "redis",
    "pydantic",
    "pydantic_settings",
    "parsync_redis.settings",
    "parsync_redis.store",
}


def first_sentence(text):
    first = re.match(r".+?\.(?=\s|$)", " ".join(text.split()))
    assert first
    return first[0]


def test_the_table_has_each_command_of_a_module_with_the_first_sentence_of_its_help():
    names = {module: commands_of(module) for module in COMMANDS}
    wrong = [
        f"{module} has {names[module]}"
        for module, commands in COMMANDS.items()
        if names[module] != {*commands}
    ]
    none_wrong("COMMANDS in cli/app.py has the commands of each module", wrong)
    rows = [
        (name, sentence) for commands in COMMANDS.values() for name, sentence in commands.items()
    ]
    other = [name for name, sentence in rows if first_sentence(load(name).help) != sentence]
    none_wrong(
        "COMMANDS in cli/app.py has the first sentence of the command's docstring: copy it", other
    )


def commands_of(module):
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(f"parsync_redis.{module}").register(own)
    return set(typer.main.get_group(own).commands)


@pytest.fixture
def address(store):
    """The address of a server with a cluster `demo` that has a node."""
    url = store.client.connection_pool.connection_kwargs
    url = f"redis://{url['host']}:{url['port']}/0"
    cluster = Store.from_url(url, "demo")
    join_cluster(cluster, Settings.load(url=url, cluster="demo"), create=True)
    Driver(cluster).node("n1", 2)
    return url


@pytest.mark.parametrize(("words", "never"), [(["--help"], HELP_NEVER), (["nodes"], NEVER)])
def test_a_command_imports_no_more_than_it_needs(words, never, address, tmp_path):
    program = (
        "import atexit, sys; from parsync_redis.cli import main; sys.argv = ['parsync', "
        "*sys.argv[1:]]\n"
        f"atexit.register(lambda: print([name for name in {sorted(never)} if name in sys.modules], "
        "file=sys.stderr))\n"
        "main()"
    )
    env = {"PARSYNC_URL": address, "PARSYNC_CLUSTER": "demo", "PATH": "/usr/bin:/bin", **marked()}
    done = run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.strip() == "[]"
    assert words == ["--help"] or "n1" in done.stdout
