"""The work of the demo's tasks: parse one source file and count its parts.

Pure except for `read_module`.

Complexity is nearly McCabe's: a function has 1, and one more for each `if`, `for`, `while`,
`except`, conditional expression, `and`/`or`, comprehension and its conditions, and `case`. A nested
function counts by itself.
"""

import ast
import sysconfig
import warnings
from pathlib import Path
from typing import Final, TypedDict

_EXCLUDED: Final = frozenset(("site-packages", "dist-packages", "__pycache__"))
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES: Final = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.match_case,
)


class Function(TypedDict):
    """A function: its dotted name within the module, its first line, its complexity (1 or more)."""

    name: str
    line: int
    complexity: int


class Measure(TypedDict):
    """The counts of a module; `error` says why it does not parse, and leaves only its lines."""

    module: str
    lines: int
    functions: int
    classes: int
    branches: int
    most_complex: Function | None
    error: str


def stdlib_folder() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def list_modules(folder: Path) -> list[str]:
    """Return the paths of the standard library's source files, without installed packages."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return sorted(path.as_posix() for path in paths if not _EXCLUDED & set(path.parts))


def read_module(module: str) -> Measure:
    """Measure a module of the standard library, named as by `list_modules`; raises OSError."""
    return measure(module, (stdlib_folder() / module).read_bytes())


def measure(module: str, source: bytes) -> Measure:
    """Count lines, functions, classes and branches of a source file, in its declared encoding."""
    lines = len(source.splitlines())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about odd escapes do not matter here
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        text = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}"
        return Measure(
            module=module,
            lines=lines,
            functions=0,
            classes=0,
            branches=0,
            most_complex=None,
            error=text,
        )
    functions, classes, branches = _count(tree)
    most = max(functions, key=lambda function: function["complexity"], default=None)
    return Measure(
        module=module,
        lines=lines,
        functions=len(functions),
        classes=classes,
        branches=branches,
        most_complex=most,
        error="",
    )


def _count(tree: ast.Module) -> tuple[list[Function], int, int]:
    """Return the functions, and the numbers of classes and branches.

    Without recursion, however deep the source nests.
    """
    functions: list[Function] = []
    classes = branches = 0
    todo: list[tuple[ast.AST, Function | None, str]] = [(tree, None, "")]
    while todo:
        node, owner, prefix = todo.pop()
        if isinstance(node, _FUNCTIONS):
            owner = Function(name=prefix + node.name, line=node.lineno, complexity=1)
            functions.append(owner)
            prefix = f"{prefix}{node.name}."
        elif isinstance(node, ast.ClassDef):
            classes += 1
            prefix = f"{prefix}{node.name}."
        elif branches_here := _branches_at(node):
            branches += branches_here
            if owner is not None:
                owner["complexity"] += branches_here
        todo += [(child, owner, prefix) for child in ast.iter_child_nodes(node)]
    functions.sort(key=lambda function: function["line"])
    return functions, classes, branches


def _branches_at(node: ast.AST) -> int:
    if isinstance(node, _BRANCHES):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return 0
