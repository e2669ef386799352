"""The table of commands agrees with the commands, and a command imports no more than it needs."""

import re
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.cli.app import load
from parsync_redis.cli.command_table import (
    COMMANDS,
    ELSEWHERE,
    HIDDEN_WORDS,
    NOUNS,
    PANELS,
    SHORT_WORDS,
    added_commands,
    all_commands,
    full_words,
    verbs_of,
)
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.kit.driver import Driver
from tests.kit.offenders import none_wrong
from tests.kit.reaper import marked
from tests.kit.waiting import run

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
    """Return the table of commands of each distribution, by full module."""
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


def test_commands_of_other_distributions_are_known_without_the_distributions():
    assert {name for commands in added_commands().values() for name in commands} == ELSEWHERE.keys()


def test_the_help_has_a_row_for_each_noun_each_short_word_and_each_command_without_a_verb():
    rows = [name for names in PANELS.values() for name in names]
    without_verb = [name for commands in COMMANDS.values() for name in commands if " " not in name]
    assert sorted(rows) == sorted([*NOUNS, *SHORT_WORDS, *without_verb])
    assert {noun for noun in NOUNS if verbs_of(noun)} == {
        name.split()[0] for commands in COMMANDS.values() for name in commands if " " in name
    }


def help_of(*words, columns=80):
    env = {"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)}
    result = CliRunner().invoke(app, [*words, "--help"], env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_each_group_of_the_help_fits_on_a_screen_and_hidden_words_are_in_none():
    panels = re.findall(r"^╭─ (.*?) ─+╮$(.*?)^╰─+╯$", help_of(), re.MULTILINE | re.DOTALL)
    assert [title for title, _ in panels][1 : 1 + len(PANELS)] == [*PANELS]
    assert max(body.count("\n") + 1 for _, body in panels) <= 24
    listed = {
        name for _, body in panels for name in re.findall(r"^│ ([a-z-]+) ", body, re.MULTILINE)
    }
    assert listed >= {name for names in PANELS.values() for name in names}
    assert not listed & HIDDEN_WORDS.keys()


WORDS = {
    "submit": "tasks submit",
    "status": "tasks show",
    "explain": "tasks explain",
    "cancel": "tasks cancel",
    "plan": "tasks plan",
    "purge": "tasks purge",
    "dead": "tasks list --state dead",
    "dead list": "tasks list --state dead",
    "dead show": "tasks show",
    "dead requeue": "tasks requeue",
    "demand": "kinds list",
    "names": "kinds times",
    "drain": "nodes drain",
    "undrain": "nodes undrain",
    "repair": "doctor repair",
    "quarantine": "doctor quarantine",
    "serve-token": "serve token",
    "serve-password": "serve password",
}
"""Words that scripts and people use, and what they must do for ever."""


def test_no_word_of_scripts_and_people_is_lost():
    assert {**SHORT_WORDS, **HIDDEN_WORDS} == WORDS


@pytest.mark.parametrize("word", WORDS)
def test_a_short_word_is_the_command_of_its_full_name(word):
    full_name = WORDS[word].split()
    assert full_words(word.split()) == full_name
    assert full_words([*word.split(), "x", "--json"]) == [*full_name, "x", "--json"]
    assert help_of(*word.split()) == help_of(*full_name)
    assert f" parsync {' '.join(full_name[:2])} " in help_of(*word.split()).replace(
        "root", "parsync"
    )


@pytest.mark.parametrize(
    ("words", "full"),
    [
        ("tasks", "tasks list"),
        ("tasks --state dead", "tasks list --state dead"),
        ("tasks show x", "tasks show x"),
        ("tasks --help", "tasks --help"),
        ("tasks lst", "tasks lst"),
        ("nodes", "nodes list"),
        ("nodes n1", "nodes show n1"),
        ("nodes n1 --json", "nodes show n1 --json"),
        ("nodes --json n1", "nodes list --json n1"),
        ("nodes drain n1", "nodes drain n1"),
        ("nodes drian n1", "nodes drian n1"),
        ("doctor --audit", "doctor check --audit"),
        ("serve --port 0", "serve run --port 0"),
        ("serve token", "serve token"),
        ("scheduler --name s1", "scheduler --name s1"),
        ("no such", "no such"),
        ("", ""),
    ],
)
def test_a_noun_without_a_verb_does_its_first_verb(words, full):
    assert full_words(words.split()) == full.split()


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (("tasks", "cancle", "x"), "'cancel'"),
        (("cancle", "x"), "'cancel', 'acl'"),
        (("nodes", "drian", "n1"), "'drain', 'undrain'"),
        (("drian", "n1"), "'drain', 'undrain'"),
        (("doctor", "repiar"), "'repair'"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_words_that_are_near(words, guess):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert f"Did you mean {guess}?" in result.stderr


def test_the_help_of_a_noun_has_its_verbs_and_the_flags_of_the_first():
    for noun in NOUNS:
        text = help_of(noun, columns=200)
        assert re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE) == [*verbs_of(noun)]
    assert "--older-than" in help_of("tasks")
    assert "--submitters" in help_of("serve")


def completed(*words):
    env = {
        "_PARSYNC_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("parsync", *words)),
        "COMP_CWORD": str(len(words)),
        "PARSYNC_URL": "redis://127.0.0.1:1/0",
    }
    result = CliRunner().invoke(app, [], env=env, prog_name="parsync")
    assert (result.stderr, result.exit_code) == ("", 0)
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (("sub",), ["submit"]),
        (("tasks", "p"), ["purge", "plan"]),
        (("tasks", "--old"), ["--older-than"]),
        (("tasks", "--state", "wai"), ["waiting"]),
        (("tasks", "list", "--state", "wai"), ["waiting"]),
        (("cancel", "--old"), ["--older-than"]),
        (("dead", "--lim"), ["--limit"]),
        (("nodes", "dr"), ["drain"]),
        (("nodes", "drain", "--dead"), ["--deadline"]),
        (("drain", "--dead"), ["--deadline"]),
        (("doctor", "quarantine", "cl"), ["clear"]),
        (("quarantine", "cl"), ["clear"]),
    ],
)
def test_a_shell_completes_full_names_and_short_words(words, completions):
    assert completed(*words) == completions


def commands_of(module):
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(module).register(own)
    return set(typer.main.get_group(own).commands)


@pytest.fixture
def address(store):
    """Return the address of a server with a cluster `demo` that has a node."""
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


@pytest.mark.parametrize(
    ("words", "never"), [(["--help"], HELP_NEVER), (["nodes"], NEVER), (["nodes", "list"], NEVER)]
)
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
