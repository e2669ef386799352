"""The house: which part may import which, how large a file may be, and that every error has a
public name.

Files that break a rule today are listed, with the reason or the size. The lists only shrink.
"""

import ast
import inspect
import re
import sys
from pathlib import Path

import parsync_redis
from parsync_redis import errors
from tests.kit import REPO, TESTS
from tests.kit.offenders import none_wrong

PACKAGE = REPO / "parsync_redis"
MODULES = {
    ".".join(file.relative_to(home).with_suffix("").parts): file
    for home, package in ((REPO, "parsync_redis"), (REPO / "lab", "parsync_lab"))
    for file in (home / package).rglob("*.py")
}
"""The files of both distributions by their modules; that of a package ends in `__init__`."""

LAYERS = {
    "errors": "",
    "logs": "errors",
    "health_file": "errors",
    "model": "errors",
    "wire": "errors model",
    "security": "errors model wire",
    "placement": "model",
    "settings": "errors model",
    "store": "errors model wire placement settings",
    "inspect": "errors model wire placement store settings",
    "near": "errors model placement store",
    "orders": "errors model",
    "submission": "errors model wire placement store",
    "client": "errors model near store settings submission inspect",
    "scheduler": "errors health_file model placement store settings",
    "worker": "errors logs health_file model near wire store settings submission client inspect",
    "integration": "errors model wire store settings submission client worker",
    "loader": "integration",
    "testing": "errors model placement store settings submission client scheduler integration",
    "cli": "errors logs model security store settings inspect client scheduler",
    "serve": "errors logs model placement store settings submission inspect client cli",
    "__init__": "errors model settings client integration",
}
"""The parts that each part may import, besides itself."""

TO_REPAIR: set[tuple[str, str]] = set()
"""Arrows that the table does not have."""

MOST_LINES = 400
MOST_LUA = 160
MOST_TESTS = 600

TOO_LONG: dict[str, int] = {}
"""Files that are longer than they may be: they may shrink, not grow."""


def imports() -> set[tuple[str, str]]:
    """Return (part, part that it imports) of the package, by its files' own import statements."""
    found: set[tuple[str, str]] = set()
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(REPO).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (
                node.level or (node.module or "").startswith("parsync_redis")
            ):
                base = place[: len(place) - node.level] if node.level else ()
                target = (
                    [*base, *(node.module or "").split(".")]
                    if node.module
                    else [*base, node.names[0].name]
                )
                found |= (
                    {(place[1], target[1])} if len(target) > 1 and target[1] != place[1] else set()
                )
    return {(one, other) for one, other in found if other != "__version__"}


def test_a_part_imports_only_those_below_it() -> None:
    allowed = {(part, other) for part, others in LAYERS.items() for other in others.split()}
    assert imports() - allowed - TO_REPAIR == set(), (
        "an arrow that the table of layers does not have"
    )
    assert imports() >= TO_REPAIR, "repaired: take it out of TO_REPAIR"


def test_no_part_imports_the_lab() -> None:
    own = {name: file for name, file in MODULES.items() if name.startswith("parsync_redis")}
    importers = [
        name for name, file in own.items() if re.search(r"\bparsync_lab\b", file.read_text())
    ]
    none_wrong("the lab is a distribution of its own, which parsync-redis does not name", importers)


ROOMS = {
    "scheduler/core": (
        "numpy",
        "parsync_redis.model",
        "parsync_redis.placement",
        "parsync_redis.scheduler.core",
    ),
    "worker/node": (
        "redis",
        "opentelemetry",
        "parsync_redis.errors",
        "parsync_redis.health_file",
        "parsync_redis.inspect",
        "parsync_redis.model",
        "parsync_redis.settings",
        "parsync_redis.store",
        "parsync_redis.worker.duty",
        "parsync_redis.worker.isolation",
        "parsync_redis.worker.node",
    ),
    "worker/isolation": (
        "redis",
        "parsync_redis.errors",
        "parsync_redis.logs",
        "parsync_redis.model",
        "parsync_redis.store",
        "parsync_redis.worker.children",
        "parsync_redis.worker.isolation",
        "parsync_redis.worker.node",
    ),
}
"""The modules that the files of a folder may import, besides the standard library."""


def imported_modules(file: Path) -> set[str]:
    """Return the full names of the modules that a file imports."""
    package = file.relative_to(REPO).parent.parts
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            names = [node.module] if node.module else [alias.name for alias in node.names]
            modules |= {".".join((*base, name)) for name in names}
    return modules


def test_a_room_imports_only_what_it_may() -> None:
    offenders = [
        f"{file.relative_to(REPO)}: {module}"
        for room, allowed in ROOMS.items()
        for file in sorted((PACKAGE / room).rglob("*.py"))
        for module in sorted(imported_modules(file))
        if module.partition(".")[0] not in sys.stdlib_module_names
        and not any(f"{module}.".startswith(f"{name}.") for name in allowed)
    ]
    none_wrong("a room imports only what ROOMS lists, and the standard library", offenders)


CIRCLES_TO_REPAIR: set[frozenset[str]] = set()
"""Modules that import each other today."""


def module_imports() -> dict[str, set[str]]:
    """Return module -> the modules that it imports, also for types only and inside functions."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                base = name.split(".")[: -node.level] if node.level else []
                target = ".".join([*base, *([node.module] if node.module else [])])
                home = target if target in MODULES else f"{target}.__init__"
                names = {alias.name for alias in node.names} - {"__version__"}
                targets = {
                    full if (full := f"{target}.{each}") in MODULES else home for each in names
                }
                found[name] |= (targets & MODULES.keys()) - {name}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    reached = module_imports()
    for through in reached:  # Warshall: what each module reaches, by any number of steps
        for targets in reached.values():
            if through in targets:
                targets |= reached[through]
    short = {name: name.removeprefix("parsync_redis.") for name in reached}
    circles = {
        frozenset(short[other] for other in targets if name in reached[other])
        for name, targets in reached.items()
        if name in targets
    }
    assert circles - CIRCLES_TO_REPAIR == set(), "these import each other"
    assert circles == CIRCLES_TO_REPAIR, "repaired: take it out of CIRCLES_TO_REPAIR"


MOST_ANY = 40
ANY_FOLDERS = ("worker", "integration")


def uses_of_any(file: Path) -> list[tuple[int, bool]]:
    """Yield the lines of a file that use Any, and whether a comment there, or right above the statement, gives the reason."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    reason = re.compile(r"# .*\bAny: .")
    found = []
    for statement in ast.walk(ast.parse(text)):
        if not isinstance(statement, ast.stmt):
            continue
        inner = getattr(statement, "body", [])
        end = inner[0].lineno - 1 if inner else statement.end_lineno or statement.lineno
        above = [decorator.lineno for decorator in getattr(statement, "decorator_list", [])]
        first = min([statement.lineno, *above])
        own = {id(name) for part in inner for name in ast.walk(part)}
        anys = [
            n
            for n in ast.walk(statement)
            if isinstance(n, ast.Name) and n.id == "Any" and id(n) not in own
        ]
        given = any(reason.search(line) for line in lines[max(0, first - 2) : end])
        found += [(name.lineno, given) for name in anys]
    return found


def test_each_any_outside_the_celery_code_has_a_reason() -> None:
    files = [file for folder in ANY_FOLDERS for file in (PACKAGE / folder).rglob("*.py")]
    uses = {(file.name, line): given for file in files for line, given in uses_of_any(file)}
    assert [place for place, given in uses.items() if not given] == [], (
        "say why: '# Any: ...', on its line or above"
    )
    assert sum(len(uses_of_any(file)) for file in files) <= MOST_ANY


def test_the_table_of_layers_has_no_circle() -> None:
    left = {part: set(others.split()) for part, others in LAYERS.items()}
    while free := {part for part, others in left.items() if not others}:
        left = {part: others - free for part, others in left.items() if part not in free}
    assert not left


def test_a_file_is_no_longer_than_it_may_be() -> None:
    most = {
        "parsync_redis/**/*.py": MOST_LINES,
        "lab/parsync_lab/**/*.py": MOST_LINES,
        "lua/**/*.lua": MOST_LUA,
        "tests/**/*.py": MOST_TESTS,
        "lab/tests/**/*.py": MOST_TESTS,
        "examples/**/*.py": MOST_LINES,
    }
    long = {}
    for pattern, limit in most.items():
        for file in REPO.glob(pattern):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            if lines > limit:
                long[file.relative_to(REPO).as_posix()] = lines
    assert {name: lines for name, lines in long.items() if lines > TOO_LONG.get(name, 0)} == {}, (
        "split it"
    )
    assert TOO_LONG.keys() <= long.keys(), "it is short enough now: take it out of TOO_LONG"


def public_types(file: Path) -> set[str]:
    """Return the names of a module's classes and type aliases, without those that begin with _."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and not is_type_variable(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if name[0].isupper() and not name.isupper()}


def is_type_variable(value: ast.expr) -> bool:
    """Return whether an assigned value is a type variable, whose name has no meaning elsewhere."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def test_a_class_and_a_type_alias_have_their_name_alone() -> None:
    places: dict[str, list[str]] = {}
    for file in MODULES.values():
        for name in public_types(file):
            places.setdefault(name, []).append(file.relative_to(REPO).as_posix())
    several = {name: files for name, files in places.items() if len(files) > 1}
    none_wrong(
        "one word has one meaning",
        [f"{name}: {', '.join(several[name])}" for name in sorted(several)],
    )


def test_every_error_has_a_public_name() -> None:
    own = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert own <= set(parsync_redis.__all__)


def test_a_helper_module_stands_in_the_kit() -> None:
    """Chaos and parity are programs with parts of their own."""
    suites = [TESTS / name for name in ("docs", "store", "system", "unit")]
    files = [file.relative_to(TESTS).as_posix() for suite in suites for file in suite.rglob("*.py")]
    kinds = re.compile(r".*/(test_\w+|conftest|__init__)\.py")
    helpers = {file for file in files if not kinds.fullmatch(file)}
    assert helpers == {"system/deploy/compose.py"}, "move it to tests/kit; compose.py is a test"
    assert not [*(TESTS / "kit").rglob("test_*.py")]


def test_a_behaviour_has_three_files_and_a_row_in_contributing() -> None:
    folders = [file.parent for file in (TESTS / "system").glob("*/__init__.py")]
    assert len(folders) > 10
    none_wrong(
        "a folder of tests/system has three files beside __init__.py",
        [folder.name for folder in folders if len([*folder.glob("*.py")]) < 4],
    )
    page = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    none_wrong(
        "a folder of tests/system has a row in CONTRIBUTING.md",
        [folder.name for folder in folders if f"`tests/system/{folder.name}/`" not in page],
    )


def test_a_test_name_has_a_subject_and_a_helper_a_verb() -> None:
    """A reader of a failure has the name only; a reader of a test has a helper's docstring only."""
    riddle = re.compile(r"test_(what|whatever|who|whose|it|that|those|these|nobody|nothing)_")
    noun = re.compile(r"(A|An|The|Each|Every|All|What|Whether|Those|These|Its|Names|Two|Three)\b")
    riddles = []
    nouns = []
    for file in [*TESTS.rglob("*.py"), *(REPO / "lab" / "tests").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            place = f"{file.relative_to(REPO)}: {node.name}"
            if riddle.match(node.name):
                riddles.append(place)
            is_case = file.is_relative_to(TESTS / "parity" / "cases")  # a docstring is on the page
            is_helper = not node.name.startswith(("test_", "__")) and not is_case
            if is_helper and noun.match(ast.get_docstring(node) or ""):
                nouns.append(place)
    none_wrong("the name of a test begins with its subject", riddles)
    none_wrong("the docstring of a helper of tests begins with a verb", nouns)
