"""The code blocks of the pages: what each language is, and what a line of the shell may say.

README.md and every page of docs/ are read. A block is checked by its language: see
`test_blocks.py`. The Python and the console blocks of the pages in RUN run on one started cluster:
see `test_pages.py`.
"""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache

from celery.bin.worker import worker
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.cli.app import load
from parsync_redis.integration.worker_options import WORKER_OPTIONS
from parsync_redis.settings import CONFIG_VARIABLE, Settings
from tests.kit import REPO
from tests.kit.documents import Block, Document, command_of

RUN = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "start",
            "your-own-app",
            "needs",
            "wishes",
            "operate",
            "gpus",
            "at-most-n",
            "share-a-cluster",
            "coming-from-locks",
        )
    ),
)
"""Pages whose Python and console blocks run, in this order."""

OWN_TESTS = {
    "docs/api.md": "tests/docs/test_api.py",
    "docs/inspect.md": "tests/docs/test_inspect.py",
    "docs/journey-of-a-task.md": "tests/docs/test_journey.py",
}
"""Pages whose blocks another test runs."""

FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
"""The first line of a block that is a file."""

POLICY = re.compile(r"^\[(tenants|limits)\b", re.MULTILINE)
"""A line of a block of TOML that is a policy, and no settings file."""


def all_pages() -> list[str]:
    """Return every page, from the root of the checkout."""
    return [
        "README.md",
        *sorted(path.relative_to(REPO).as_posix() for path in (REPO / "docs").rglob("*.md")),
    ]


def blocks() -> Iterator[tuple[str, Block]]:
    """Yield every block that no other test runs, with its page."""
    for name in all_pages():
        if name not in OWN_TESTS:
            for block in Document(name).blocks():
                yield name, block


def files() -> dict[str, set[str]]:
    """Return the files that blocks are: name -> the texts that the pages give it."""
    found: dict[str, set[str]] = {}
    for _, block in blocks():
        if match := FILE.match(block.text):
            found.setdefault(match[1], set()).add(block.text)
    return found


# -- the shell -------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a block of the shell as words, without variables, redirections and
    keywords.
    """
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in ("|", ";", "&&", "||", "&"):
                while words and (
                    re.match(r"[A-Z_]+=", words[0]) or words[0] in ("export", "do", "then")
                ):
                    words.pop(0)
                if words and words[0] not in ("done", "fi", "for"):
                    yield words
                words = []
            else:
                words.append(word)


@cache
def help_of(*command: str) -> str:
    """Return the help of a command of parsync."""
    result = CliRunner().invoke(
        app, [*command, "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}
    )
    assert result.exit_code == 0, result.output
    return result.output


def check_parsync(words: list[str]) -> None:
    """Check that the command exists, with its flags."""
    command, arguments = command_of(words)
    assert command, f"parsync has no command {' '.join(words)}"
    below = [word for word in arguments[:1] if word in getattr(load(command), "commands", ())]
    for word in arguments:
        if word.startswith("-"):
            shown = help_of(*command.split(), *below)
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", shown), (
                f"{words[0]} {word}"
            )


def check_celery(words: list[str]) -> None:
    """Check that the flags of a worker exist, Celery's and ours."""
    if words[0] != "-A":
        return
    assert words[2] == "worker"
    known = {flag for parameter in worker.params for flag in parameter.opts} | {
        names[0] for names, _ in WORKER_OPTIONS
    }
    wrong = [
        word for word in words[3:] if word.startswith("-") and word.partition("=")[0] not in known
    ]
    assert not wrong, f"celery worker has no {wrong}"


def check_make(words: list[str]) -> None:
    """Check that the targets exist."""
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    for target in words:
        assert "=" in target or re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def check_paths(words: list[str]) -> None:
    """Check that files of the checkout exist."""
    for word in words:
        if re.match(r"(deploy|examples|docs|tests)/|docker-compose|Dockerfile", word):
            assert [*REPO.glob(word)], f"{word} is not in the checkout"


def check_pip(words: list[str]) -> None:
    """Check that the extras exist."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in words:
        if found := re.fullmatch(r"(?:\.|parsync-redis)\[(\w+)\]", word):
            assert found[1] in project["optional-dependencies"]


def check_systemctl(words: list[str]) -> None:
    """Check that the units exist."""
    for unit in words:
        if unit.startswith("parsync"):
            name = re.sub(r"@.*", "@", unit)
            assert (REPO / f"deploy/systemd/{name}.service").is_file(), f"there is no unit {name}"


def trust(words: list[str]) -> None:
    """Check nothing: the program is not ours, and says itself what is wrong."""


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "parsync": check_parsync,
    "celery": check_celery,
    "make": check_make,
    "pip": check_pip,
    "/opt/parsync/venv/bin/pip": check_pip,
    "systemctl": check_systemctl,
    **dict.fromkeys(("docker", "helm", "install", "sh"), check_paths),
    **dict.fromkeys(
        (
            "redis-cli",
            "xargs",
            "test",
            "python3",
            ".",
            "useradd",
            "mkdir",
            "openssl",
            "curl",
            "kubectl",
        ),
        trust,
    ),
}
"""The programs with which a line of the shell may begin."""


def check_shell(text: str) -> None:
    """Check each command of a block of the shell, and the variables of ours that it sets."""
    known = {f"PARSYNC_{name.upper()}" for name in Settings.model_fields} | {CONFIG_VARIABLE}
    variables = {*re.findall(r"\b(PARSYNC_\w+)=", text)}
    assert variables <= known, f"{variables - known}: no such setting"
    found = [*commands(text)]
    assert found or variables, "there is no command in it"
    for program, *words in found:
        assert program in PROGRAMS, f"{program}: a page may call {', '.join(PROGRAMS)}"
        PROGRAMS[program](words)


# -- the console -----------------------------------------------------------------------------------


def asked(block: Block) -> Iterator[tuple[str, str]]:
    """Yield (the line, what is shown) of each command in a block of the console."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield line, shown
