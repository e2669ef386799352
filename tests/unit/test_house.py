"""The house: which part may import which, how large a file may be, and that every error has a public name.

What breaks a rule today is listed, with the reason or the size. The lists only shrink.
"""

import ast
import inspect
import re
from pathlib import Path

import parsync_redis
from parsync_redis import errors

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "parsync_redis"

LAYERS = {
    "errors": "",
    "model": "errors",
    "wire": "errors model",
    "security": "errors model wire",
    "placement": "model",
    "settings": "errors model",
    "store": "errors model wire placement settings",
    "inspect": "errors model wire placement store settings",
    "submission": "errors model wire placement store",
    "client": "errors model store settings submission inspect",
    "scheduler": "errors model placement store settings",
    "worker": "errors model wire store settings submission client inspect",
    "integration": "errors model wire store settings submission client worker",
    "loader": "integration",
    "demo": "model store client integration",
    "cli": "errors model security store settings inspect client scheduler demo",
    "lab": "errors model wire placement store settings inspect client scheduler integration demo cli",
    "__init__": "errors model settings client integration",
}
"""What each part may import, besides itself."""

TO_REPAIR: set[tuple[str, str]] = set()
"""Arrows that the table does not have."""

MOST_LINES, MOST_LUA, MOST_TESTS = 250, 80, 500

TOO_LONG = {
    "parsync_redis/client.py": 330,
    "parsync_redis/integration/app.py": 368,
    "parsync_redis/model/task.py": 297,
    "parsync_redis/security/acl.py": 302,
    "parsync_redis/wire/message.py": 309,
    "parsync_redis/worker/agent.py": 484,
    "parsync_redis/worker/inbox.py": 365,
    "tests/parity/tasks.py": 546,
}
"""Files that are longer than they may be: they may shrink, not grow."""


def imports() -> set[tuple[str, str]]:
    """(part, part that it imports) of the package, by its files' own import statements."""
    found: set[tuple[str, str]] = set()
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("parsync_redis")):
                base = place[: len(place) - node.level] if node.level else ()
                target = [*base, *(node.module or "").split(".")] if node.module else [*base, node.names[0].name]
                found |= {(place[1], target[1])} if len(target) > 1 and target[1] != place[1] else set()
    return {(one, other) for one, other in found if other != "__version__"}


def test_a_part_imports_only_those_below_it() -> None:
    allowed = {(part, other) for part, others in LAYERS.items() for other in others.split()}
    assert imports() - allowed - TO_REPAIR == set(), "an arrow that the table of layers does not have"
    assert imports() >= TO_REPAIR, "repaired: take it out of TO_REPAIR"


def test_only_the_table_of_commands_names_the_lab() -> None:
    named = [
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if "lab" not in file.relative_to(PACKAGE).parts and re.search(r"\blab\b", file.read_text(encoding="utf-8"))
    ]
    assert named == ["cli/app.py"], "nothing below imports lab; commands are named in COMMANDS of cli/app.py"


def test_the_table_of_layers_has_no_circle() -> None:
    left = {part: set(others.split()) for part, others in LAYERS.items()}
    while free := {part for part, others in left.items() if not others}:
        left = {part: others - free for part, others in left.items() if part not in free}
    assert not left


def test_a_file_is_no_longer_than_it_may_be() -> None:
    most = {"parsync_redis/**/*.py": MOST_LINES, "lua/**/*.lua": MOST_LUA, "tests/**/*.py": MOST_TESTS}
    long = {}
    for pattern, limit in most.items():
        for file in ROOT.glob(pattern):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            if lines > limit:
                long[file.relative_to(ROOT).as_posix()] = lines
    assert {name: lines for name, lines in long.items() if lines > TOO_LONG.get(name, 0)} == {}, "split it"
    assert TOO_LONG.keys() <= long.keys(), "it is short enough now: take it out of TOO_LONG"


def test_every_error_has_a_public_name() -> None:
    own = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert own <= set(parsync_redis.__all__)
