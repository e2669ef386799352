"""The code is not too dense, and its names say something.

These guards of the house stand beside those of test_house.py; test_lua_layout.py has the guards of
Lua. Offenders of today are counted by folder. A count only shrinks: whoever mends some writes the
new count.
"""

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.kit import REPO
from tests.kit.offenders import none_wrong

PACKAGE = sorted((REPO / "parsync_redis").rglob("*.py"))
LAB = sorted((REPO / "lab/parsync_lab").rglob("*.py"))

DATA = tomllib.loads((REPO / "tests/unit/density.toml").read_text(encoding="utf-8"))
NO_NAMES = frozenset(DATA["no_names"].split())
SHARED_CONSTANTS = frozenset(DATA["shared_constants"].split())
LAB_SHARED_CONSTANTS = frozenset(DATA["lab_shared_constants"].split())
OFFENDERS: dict[str, int] = DATA["names"]


def stored(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that code assigns, and each argument: (name, line)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def tuple_assignments(tree: ast.AST) -> Iterator[ast.Assign]:
    """Yield assignments of several values at once, but for swaps."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                before = {ast.unparse(element) for element in target.elts}
                after = {ast.unparse(element) for element in node.value.elts}
                if before != after:
                    yield node


def test_a_line_assigns_one_thing():
    wrong = [
        f"{file.relative_to(REPO)}:{node.lineno}: {ast.unparse(node)}"
        for file in [*PACKAGE, *LAB]
        for node in tuple_assignments(ast.parse(file.read_text(encoding="utf-8")))
    ]
    none_wrong(
        "one assignment a line; a swap and the unpacking of a call may assign several", wrong
    )


def test_a_name_is_no_filler_word():
    places: dict[str, list[str]] = defaultdict(list)
    for file in [*PACKAGE, *LAB]:
        home, inner = file.relative_to(REPO).parts[:2]
        folder = inner if home == "parsync_redis" else home
        for name, line in stored(ast.parse(file.read_text(encoding="utf-8"))):
            if name.strip("_").lower() in NO_NAMES:
                places[folder].append(f"{file.relative_to(REPO)}:{line}: {name}")
    for folder, offenders in places.items():
        if len(offenders) > OFFENDERS.get(folder, 0):
            none_wrong(
                f"a name says what it is; {OFFENDERS.get(folder, 0)} are allowed here", offenders
            )
    count = {folder: len(offenders) for folder, offenders in places.items()}
    assert count == OFFENDERS, "fewer are left: write the new counts into density.toml"


SUMMARIES = [*PACKAGE, *sorted((REPO / "examples").rglob("*.py")), *LAB]
"""The files in which each docstring's summary fits on its line."""


def test_a_summary_fits_on_its_line():
    wrong = [
        f"{file.relative_to(REPO)}: {summary}"
        for file in SUMMARIES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and "\n" in (summary := (ast.get_docstring(node) or "").split("\n\n")[0])
    ]
    none_wrong("the first line of a docstring is a whole sentence, and a blank line follows", wrong)


def constants(file: Path) -> Iterator[str]:
    """Yield the names of a module's constants; type variables are none."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec"):
            continue
        yield from (t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper())


def test_a_constant_has_its_name_alone():
    homes = Counter(name for file in PACKAGE for name in set(constants(file)))
    several = {name for name, count in homes.items() if count > 1}
    none_wrong("the name of a constant has one home", sorted(several - SHARED_CONSTANTS))
    assert several == SHARED_CONSTANTS, "they have one home now: take them out of density.toml"


def test_a_constant_of_the_lab_has_its_name_alone():
    of_lab = Counter(name for file in LAB for name in set(constants(file)))
    of_package = {name for file in PACKAGE for name in constants(file)}
    several = {name for name, count in of_lab.items() if count > 1 or name in of_package}
    none_wrong("the name of a constant has one home", sorted(several - LAB_SHARED_CONSTANTS))
    assert several == LAB_SHARED_CONSTANTS, "they have one home now: take them out of density.toml"
