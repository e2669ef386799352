"""Put the body of a Lua function in the place of its only call.

The server makes each function anew in each run of a script, which costs as much as a third of a
command. So a step of a verb costs nothing as long as the verb calls it once. No parser is needed,
because lua/ has one statement a line and two spaces a block (tests/unit/test_lua_layout.py).

    local ids, owners = read_states()          local ids, owners
                                               do -- read_states
                                                 ...
                                                 ids, owners = list, redis.call(...)
                                               end

A function with an early return becomes `repeat ... until true`, and the return becomes an
assignment and a `break`. A function stays as it is if it returns from within a loop, if its body
has functions of its own, if its call is a part of a longer statement, or if a name that it uses
means something else at its call.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

_DEFINITION: Final = re.compile(r"local function (\w+)\(([\w, ]*)\)$")
_BEFORE: Final = re.compile(r"( *)((?:local )?[\w, ]+ = |return |if not |if |)$")
_BEHIND: Final = re.compile(r"|(?: --.*)| (?:or|and|then|==|~=|[<>.+-]).*")
_LOCAL: Final = re.compile(r" *local (?!function)([\w, ]+?)(?: =.*)?$")
_LOOP: Final = re.compile(r" *for ([\w, ]+?) (?:=|in) ")
_NESTED: Final = re.compile(r".*\bfunction\b ?[\w.:]*\(([\w, ]*)\)$")
_RETURN: Final = re.compile(r"( *)return\b ?(.*)")
_WORD: Final = re.compile(r"(?<![.:\w])[A-Za-z_]\w*")
_PACKED: Final = re.compile(r"\bfunction\b|\b(?:then|do|else)\b.*\b(?:end|return)\b|\S.*\breturn\b")
_GOES_ON: Final = re.compile(r"(?:[=,({\[+*/<>-]|\.\.|\b(?:or|and|not))$")
"""The end of a line whose statement goes on in the next line."""
_CONTINUES: Final = re.compile(r" *(?:or\b|and\b|\.\.|==|~=|[-+*/<>,.:)\]}])")
"""The beginning of a line that continues the statement of the line before."""
_NO_CODE: Final = re.compile(r"'[^'\n]*'|--.*")


def inline_single_calls(text: str) -> str:
    """Put each function that is called once, as a statement, in the place of its call.

    text: a script. Returns the changed script.
    """
    lines = text.split("\n")
    words = Counter(word for line in lines for word in _words(line))
    names = [match[1] for line in lines if (match := _DEFINITION.match(line))]
    for name in names:
        if words[name] == 2:
            _inline(name, lines)
    return "\n".join(lines)


def _inline(name: str, lines: list[str]) -> None:
    """Put a function in the place of its only call, if that is possible."""
    first = next(i for i, line in enumerate(lines) if line.startswith(f"local function {name}("))
    last = lines.index("end", first)
    site = next(
        i
        for i, line in enumerate(lines)
        if name in line and not first <= i <= last and name in _words(line)
    )
    body = lines[first + 1 : last]
    call = _split_call(name, lines[site])
    if not call or any(_PACKED.search(_NO_CODE.sub("''", line)) for line in body):
        return
    if _is_continued(lines, site - 1) or _is_continued(lines, site):
        return
    before, arguments, behind = call
    parameters = [
        word for word in lines[first].partition("(")[2].removesuffix(")").split(", ") if word
    ]
    if len(arguments) > len(parameters) or _free_names(parameters, body) & _hidden_names(
        lines, last, site
    ):
        return
    block = _block(name, parameters, body, before, arguments, behind)
    if block:
        lines[site : site + 1] = block
        del lines[first : last + 1]


def _is_continued(lines: Sequence[str], i: int) -> bool:
    """Return whether the statement in line i goes on in the next line."""
    line = _NO_CODE.sub("''", lines[i]).rstrip()
    following = lines[i + 1] if i + 1 < len(lines) else ""
    if line.endswith("return"):
        return _indent(following) > _indent(line)
    return bool(_GOES_ON.search(line) or _CONTINUES.match(following))


@cache
def _words(line: str) -> tuple[str, ...]:
    """Return the names in a line of code; those behind a point are of another table."""
    return tuple(_WORD.findall(_NO_CODE.sub("''", line)))


@cache
def _declared(line: str) -> tuple[int, frozenset[str]]:
    """Return the names that a line declares, and how much deeper than the line they are known.

    Returns no names and -1 for a line that declares nothing.
    """
    if match := _NESTED.match(line):
        return 2, frozenset(match[1].split(", "))
    if match := _LOOP.match(line):
        return 2, frozenset(match[1].split(", "))
    if match := _LOCAL.match(_NO_CODE.sub("''", line).rstrip()):
        return 0, frozenset(match[1].split(", "))
    return -1, frozenset()


def _split_call(name: str, line: str) -> tuple[str, list[str], str] | None:
    """Split a line at the call of the function `name`.

    Returns the text before the call, the arguments, and the text behind the call. Returns None if
    the call is a part of an expression.
    """
    before, _, after = line.partition(f"{name}(")
    arguments = []
    depth = 0
    start = 0
    for match in re.finditer(r"'[^']*'|[(\[{]|[)\]}]|,", after):
        if match[0] in ")]}" and depth == 0:
            arguments.append(after[start : match.start()])
            behind = after[match.end() :]
            sound = _BEFORE.match(before) and _BEHIND.fullmatch(behind)
            return (before, [word.strip() for word in arguments if word], behind) if sound else None
        if match[0] == "," and depth == 0:
            arguments.append(after[start : match.start()])
            start = match.end()
        depth += (match[0] in "([{") - (match[0] in ")]}")
    return None


def _scopes(lines: Sequence[str]) -> Iterator[tuple[str, list[tuple[int, frozenset[str]]]]]:
    """Yield each line of code with its scopes; a scope is (indent, the names that it declares)."""
    scopes: list[tuple[int, frozenset[str]]] = []
    for line in lines:
        if not line.strip():
            continue
        indent = _indent(line)
        if scopes and scopes[-1][0] > indent:  # the deepest scope is the last
            scopes = [scope for scope in scopes if scope[0] <= indent]
        deeper, names = _declared(line)
        if deeper == 2:
            scopes = [*scopes, (indent + 2, names)]
        yield line, scopes
        if deeper == 0:
            scopes = [*scopes, (indent, names)]


def _scoped(lines: Sequence[str], names: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each line of code with the local names that the line knows, besides `names`."""
    for line, scopes in _scopes(lines):
        yield line, names.union(*(declared for _, declared in scopes))


def _free_names(parameters: Sequence[str], body: Sequence[str]) -> set[str]:
    """Return the names in a function that the function does not define."""
    free: set[str] = set()
    for line, visible in _scoped(body, set(parameters)):
        free |= {*_words(line.partition("=")[2] if _LOCAL.match(line) else line)} - visible
    return free


def _hidden_names(lines: Sequence[str], start: int, site: int) -> set[str]:
    """Return the locals that a call sees and the called function does not.

    lines: a script, in which the function ends at line `start` and the call is at line `site`.
    """
    scopes: list[tuple[int, frozenset[str]]] = []
    for _, at_line in _scopes(lines[start + 1 : site + 1]):
        scopes = at_line
    return set().union(*(declared for _, declared in scopes))


def _block(
    name: str,
    parameters: Sequence[str],
    body: Sequence[str],
    before: str,
    arguments: Sequence[str],
    behind: str,
) -> list[str] | None:
    """Return the lines that stand for a call; None if the function returns from within a loop."""
    indent = " " * _indent(before)
    statement = before.strip()
    code = behind.partition(" --")[0]
    if statement == "return" and not code:
        moved = _move(body if _ends_with_return(body) else [*body, "  return"], indent)
        return [
            f"{indent}do -- {name}",
            *_bind(parameters, arguments, indent),
            *moved,
            f"{indent}end",
        ]
    returns = [i for i, line in enumerate(body) if _RETURN.match(line)]
    if any(_in_loop(body, i) for i in returns):
        return None
    if not statement and any(_is_continued(body, i) for i in returns):
        return None
    targets = (
        statement.removesuffix("=").removeprefix("local ").strip().split(", ")
        if statement.endswith("=")
        else []
    )
    own_names = {word for line, visible in _scoped(body, set(parameters)) for word in visible}
    own_names |= _free_names(parameters, body).union(*map(_words, arguments))
    direct = statement.startswith("local ") and not code and own_names.isdisjoint(targets)
    result_count = len(targets) if not code else 1
    results = (
        targets if direct else [f"{name}_{n}" for n in range(1, (result_count or bool(code)) + 1)]
    )
    early = [i for i in returns if _indent(body[i]) > 2 or not _is_last(body, i)]
    lines = [f"{indent}local {', '.join(results)}"] if results else []
    lines += [
        f"{indent}{'repeat' if early else 'do'} -- {name}",
        *_bind(parameters, arguments, indent),
    ]
    lines += _move(_without_returns(body, results, bool(early)), indent)
    lines.append(f"{indent}{'until true' if early else 'end'}")
    if results and not direct:
        lines.append(f"{before}{', '.join(results)}{behind}")
    return lines


def _bind(parameters: Sequence[str], arguments: Sequence[str], indent: str) -> list[str]:
    """Return the line that gives the parameters their values.

    A parameter with the name of its argument is bound as well: the body may change what the
    argument names.
    """
    if not parameters:
        return []
    values = f" = {', '.join(arguments)}" if arguments else ""
    return [f"{indent}  local {', '.join(parameters)}{values}"]


def _without_returns(body: Sequence[str], results: Sequence[str], early: bool) -> list[str]:
    """Return a function's body with assignments to `results` in the place of its returns.

    early: whether a return may stand before the last statement. Such a return also leaves the
    block.
    """
    lines: list[str] = []
    breaks: list[int] = []
    for i, line in enumerate(body):
        indent = _indent(line)
        while breaks and line.strip() and indent < breaks[-1]:
            lines.append(f"{' ' * breaks.pop()}break")
        match = _RETURN.match(line)
        if not match:
            lines.append(line)
            continue
        values = match[2]
        if values and (results or "(" in values):
            lines.append(f"{match[1]}{', '.join(results) or 'local _'} = {values}")
        if early and not _is_last(body, i):
            breaks.append(indent)
    return lines


def _in_loop(body: Sequence[str], i: int) -> bool:
    """Return whether a line is inside a loop."""
    indent = _indent(body[i])
    for line in reversed(body[:i]):
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            if re.match(r" *(?:for|while|repeat)\b", line):
                return True
    return False


def _is_last(body: Sequence[str], i: int) -> bool:
    """Return whether the return in line i of a function is the function's last statement.

    The lines behind such a return only continue the return.
    """
    return _indent(body[i]) == 2 and all(
        not line.strip() or _indent(line) >= 2 for line in body[i:]
    )


def _ends_with_return(body: Sequence[str]) -> bool:
    return any(_RETURN.match(line) and _indent(line) == 2 for line in body)


def _move(body: Sequence[str], indent: str) -> list[str]:
    return [indent + line if line.strip() else line for line in body]


@cache
def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
