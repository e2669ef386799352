"""The table of commands agrees with the commands, and a command imports no more than it needs."""

import re
import sys
from importlib import import_module

import pytest
import typer

from parsync_redis.cli.app import COMMANDS, ELSEWHERE, added_commands, all_commands, load
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.lua.driver import Driver
from tests.offenders import none_wrong
from tests.reaper import marked
from tests.waiting import run

NEVER = {"celery", "kombu", "numpy", "matplotlib", "parsync_lab"} | {
    f"parsync_redis.{part}" for part in ("scheduler", "worker", "integration")
}
"""Modules that a command which reads a cluster does not need."""

HELP_NEVER = NEVER - {"parsync_lab"} | {
    "redis",
    "pydantic",
    "pydantic_settings",
    "parsync_redis.settings",
    "parsync_redis.store",
    "parsync_lab.bench",
    "parsync_lab.simulate",
}
"""Modules that the list of all commands does not need: it reads the lab's table only."""


def first_sentence(text):
    first = re.match(r".+?\.(?=\s|$)", " ".join(text.split()))
    assert first
    return first[0]


def tables():
    """The table of commands of each distribution, by full module."""
    return {
        f"parsync_redis.{module}": commands for module, commands in COMMANDS.items()
    } | added_commands()


def test_the_table_has_each_command_of_a_module_with_the_first_sentence_of_its_help():
    names = {module: commands_of(module) for module in tables()}
    wrong = [
        f"{module} has {names[module]}"
        for module, commands in tables().items()
        if names[module] != {*commands}
    ]
    none_wrong("a table (COMMANDS) has the commands of each module", wrong)
    rows = [
        (name, sentence) for commands in tables().values() for name, sentence in commands.items()
    ]
    other = [name for name, sentence in rows if first_sentence(load(name).help) != sentence]
    none_wrong(
        "a table (COMMANDS) has the first sentence of the command's docstring: copy it", other
    )
    assert [name for name, _ in rows] == all_commands()


def test_what_other_distributions_add_is_known_without_them():
    assert {name for commands in added_commands().values() for name in commands} == ELSEWHERE.keys()


def commands_of(module):
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(module).register(own)
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


def parsync(words, before, folder, **env):
    """Run `parsync` in an interpreter that runs the lines `before` first."""
    program = (
        f"import sys\n{before}\nfrom parsync_redis.cli import main\nsys.argv = ['parsync', "
        "*sys.argv[1:]]\nmain()"
    )
    env = {"PATH": "/usr/bin:/bin", **env, **marked()}
    return run(
        [sys.executable, "-c", program, *words], cwd=folder, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(("words", "never"), [(["--help"], HELP_NEVER), (["nodes"], NEVER)])
def test_a_command_imports_no_more_than_it_needs(words, never, address, tmp_path):
    told = f"print([name for name in {sorted(never)} if name in sys.modules], file=sys.stderr)"
    before = f"import atexit\natexit.register(lambda: {told})"
    done = parsync(words, before, tmp_path, PARSYNC_URL=address, PARSYNC_CLUSTER="demo")
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert words == ["--help"] or "n1" in done.stdout


def test_without_the_lab_its_commands_say_what_to_install_and_help_does_not_list_them(tmp_path):
    without = "import importlib.metadata\nimportlib.metadata.entry_points = lambda **words: ()"
    done = parsync(["bench", "cost"], without, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: `parsync bench` comes with parsync-lab, which is not installed: "
        "install it by `pip install ./lab` in a checkout of parsync-redis\n"
    )
    for before, listed in (("", True), (without, False)):
        names = re.findall(
            r"^│ ([a-z-]+) ", parsync(["--help"], before, tmp_path).stdout, re.MULTILINE
        )
        assert "scheduler" in names
        assert (names[-3:] == [*ELSEWHERE]) is listed
