"""Parameters of a task in its tenant, its limits and its key: `limits=["customer:{customer_id}"]`.

`{customer_id}` stands for the argument of that name in the call of the task. It is replaced where
the task is submitted, so a record has names of accounts only. The key is that of the rule
`warm:{model}` in `prefer`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..errors import InvalidInput
from .ids import shown

_PARAMETER: Final = re.compile(r"\{([^{}]*)\}")


class Arguments(NamedTuple):
    """The arguments of a call of a task.

    task: the name of the task.
    names: the names of the positional parameters, () if they are not known.
    """

    task: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] | None = None
    names: Sequence[str] = ()

    @classmethod
    def of(cls, task: str, body: object) -> "Arguments":
        """Return the arguments in the body of a task's message: (args, kwargs, canvas)."""
        args, kwargs, *_ = body if isinstance(body, list | tuple) else ((), None)
        return cls(task, args, kwargs)


def parameters_in(options: Mapping[str, object] | None) -> list[str]:
    """Return the names of the parameters in the tenant, the limits and the key of a task."""
    texts = _texts(options or {})
    return [name for text in texts if "{" in text for name in _PARAMETER.findall(text)]


def fill(options: Mapping[str, object], arguments: Arguments) -> Mapping[str, object]:
    """Return the options of a task with arguments of its call in tenant, limits and key.

    Two limits that become one are that limit, with the larger units. Raises InvalidInput for an
    argument that the call does not give, or that is neither text nor a whole number.
    """
    if not parameters_in(options):
        return options
    return _replaced(options, lambda name, text: _value(name, text, arguments))


def with_samples(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return options with a word for each parameter, so that a declaration can be checked.

    Raises InvalidInput for a parameter that is no plain name.
    """
    names = list(dict.fromkeys(parameters_in(options)))
    if not names:
        return options
    return _replaced(options, lambda name, text: f"x{names.index(name)}")


def without_parameters(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return options without the tenant, the limits and the key that need an argument of a call."""
    if not parameters_in(options):
        return options
    plain = dict(options)
    limits = options.get("limits")
    if _has_parameter(options.get("tenant")):
        del plain["tenant"]
    if isinstance(limits, Mapping):
        plain["limits"] = {
            name: units for name, units in limits.items() if not _has_parameter(name)
        }
    elif isinstance(limits, list | tuple):
        plain["limits"] = [name for name in limits if not _has_parameter(name)]
    if isinstance(rules := options.get("prefer"), list | tuple):
        plain["prefer"] = [rule for rule in rules if not (_is_warm(rule) and _has_parameter(rule))]
    return plain


def _is_warm(rule: object) -> bool:
    return isinstance(rule, str) and rule.strip().startswith("warm:")


def _has_parameter(value: object) -> bool:
    return isinstance(value, str) and _PARAMETER.search(value) is not None


def _texts(options: Mapping[str, object]) -> list[str]:
    values = [options.get("tenant")]
    limits = options.get("limits")
    rules = options.get("prefer")
    if isinstance(limits, Mapping | list | tuple):
        values += limits
    if isinstance(rules, list | tuple):
        values += filter(_is_warm, rules)
    return [value for value in values if isinstance(value, str)]


def _replaced(
    options: Mapping[str, object], value_of: Callable[[str, str], str]
) -> Mapping[str, object]:
    """Return options with `value_of(parameter, text with the parameter)` for each parameter."""

    def replaced(text: str) -> str:
        for name in _PARAMETER.findall(text):
            if not name.isidentifier():
                raise InvalidInput(
                    f"{shown(text)} is not valid: {{{name}}} must be the plain name of a "
                    "parameter, as in {customer_id}"
                )
        return _PARAMETER.sub(lambda match: value_of(match[1], text), text)

    filled = dict(options)
    tenant = options.get("tenant")
    limits = options.get("limits")
    rules = options.get("prefer")
    if isinstance(tenant, str):
        filled["tenant"] = replaced(tenant)
    if isinstance(rules, list | tuple):
        filled["prefer"] = [replaced(rule) if _is_warm(rule) else rule for rule in rules]
    if not isinstance(limits, Mapping | list | tuple):
        return filled
    if not all(isinstance(name, str) for name in limits):
        return filled
    if isinstance(limits, Mapping):
        filled["limits"] = _merged((replaced(name), units) for name, units in limits.items())
    else:
        filled["limits"] = list(dict.fromkeys(map(replaced, limits)))
    return filled


def _merged(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    units_by_name: dict[str, object] = {}
    for name, units in pairs:
        before = units_by_name.get(name)
        is_larger = isinstance(before, int) and isinstance(units, int) and before > units
        units_by_name[name] = before if is_larger else units
    return units_by_name


def _value(name: str, text: str, arguments: Arguments) -> str:
    """Return an argument of a call as text; raises InvalidInput."""
    args = arguments.args if isinstance(arguments.args, list | tuple) else ()
    kwargs = arguments.kwargs if isinstance(arguments.kwargs, Mapping) else {}
    names = arguments.names
    of_task = f"{shown(text)} of task {arguments.task}"
    if name in kwargs:
        value = kwargs[name]
    elif name in names and names.index(name) < len(args):
        value = args[names.index(name)]
    elif args and not names:
        raise InvalidInput(
            f"{of_task} needs the argument {name} by name: no worker has told the names of the "
            "positional arguments"
        )
    else:
        raise InvalidInput(f"{of_task} needs the argument {name}, which the call does not give")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidInput(
            f"{of_task} cannot have {name}={shown(value)}: it must be text or a whole number"
        )
    return str(value)
