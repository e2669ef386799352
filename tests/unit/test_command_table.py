"""The table of commands agrees with the commands, and a command imports no more than it needs."""

import re
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from parsync_redis.cli.app import COMMANDS, load

NEVER = {"celery", "kombu", "numpy", "matplotlib"} | {
    f"parsync_redis.{part}" for part in ("scheduler", "worker", "integration", "demo", "lab")
}
"""What a command that looks at a cluster does not need."""

HELP_NEVER = NEVER | {"redis", "pydantic", "pydantic_settings", "parsync_redis.settings", "parsync_redis.store"}


def first_sentence(text):
    return re.match(r".+?\.(?=\s|$)", " ".join(text.split()))[0]


@pytest.mark.parametrize("module", COMMANDS)
def test_the_table_has_each_command_of_a_module_with_the_first_sentence_of_its_help(module):
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(f"parsync_redis.{module}").register(own)
    assert set(typer.main.get_group(own).commands) == set(COMMANDS[module]), f"COMMANDS in cli/app.py, {module}"
    for name, sentence in COMMANDS[module].items():
        assert first_sentence(load(name).help) == sentence, f"copy the docstring of {name} into COMMANDS in cli/app.py"


@pytest.mark.parametrize(("words", "code", "never"), [(["--help"], 0, HELP_NEVER), (["nodes"], 2, NEVER)])
def test_a_command_imports_no_more_than_it_needs(words, code, never, tmp_path):
    program = (
        "import atexit, sys; from parsync_redis.cli import main; sys.argv = ['parsync', *sys.argv[1:]]\n"
        f"atexit.register(lambda: print([name for name in {sorted(never)} if name in sys.modules], file=sys.stderr))\n"
        "main()"
    )
    env = {"PARSYNC_URL": "redis://127.0.0.1:1/0", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "[]")
