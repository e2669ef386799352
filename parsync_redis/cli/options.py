"""The flags of `submit` and `plan` for the options of a task, made from model/options.py."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import InvalidInput
from ..model.condition import REQUIRE_FORMS, read_condition
from ..model.options import OPTIONS, Option
from .common import parse_pairs


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each task option.

    typer reads the signature of the command: its parameter **flags is replaced by the flags, which
    stand behind the third parameter.
    """
    parameters = list(inspect.signature(command).parameters.values())[:-1]
    hints = get_type_hints(command, include_extras=True)
    own_parameters = [
        parameter.replace(annotation=hints[parameter.name]) for parameter in parameters
    ]
    flags = [
        inspect.Parameter(
            _variable(option),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=_flag(option),
        )
        for option in OPTIONS
    ]
    all_parameters = [*own_parameters[:3], *flags, *own_parameters[3:]]
    vars(command).update(__signature__=inspect.Signature(all_parameters))
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in all_parameters}
    return command


def from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each task option by its name, None if unset; raises InvalidInput."""
    return {option.name: _option_value(option, flags[_variable(option)]) for option in OPTIONS}


def _variable(option: Option) -> str:
    """Return the name of the Python parameter of an option's flag."""
    return option.flag.removeprefix("--").replace("-", "_")


def _flag(option: Option) -> Any:
    value = list[str] if option.value in (Mapping, list) else option.value
    flag = (
        f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        if option.default is True
        else option.flag
    )
    return Annotated[value | None, typer.Option(flag, help=option.help)]


def _option_value(option: Option, value: Any) -> Any:
    if option.name == "require":
        return parse_requirements(option.flag, value) or None
    if option.value is Mapping:
        return parse_pairs(option.flag, value) or None
    if option.name == "limits":
        return parse_limits(option.flag, value) or None
    return value


def parse_limits(flag: str, words: Sequence[str] | None) -> list[str] | dict[str, int]:
    """Return the value of the option `limits`: names, or {name: units} if a word has `*UNITS`.

    words: the values of the repeated flag. Raises InvalidInput.
    """
    if not any("*" in word for word in words or ()):
        return list(words or ())
    units_by_name: dict[str, int] = {}
    for word in words or ():
        name, star, units = word.partition("*")
        if name in units_by_name or (star and not units.isdecimal()):
            raise InvalidInput(
                f"{flag} {word!r} is not valid: it must be NAME or NAME*UNITS, each name once"
            )
        units_by_name[name] = int(units) if star else 1
    return units_by_name


def parse_requirements(flag: str, words: Sequence[str] | None) -> dict[str, Any]:
    """Return the value of the option `require`: conditions by label, {"vram_gb": {">=": "24"}}.

    words: the values of the repeated flag. Raises InvalidInput.
    """
    conditions: dict[str, dict[str, Any]] = {}
    for word in words or ():
        name, sign, value = _read(flag, word)
        by_sign = conditions.setdefault(name, {})
        if sign == "not" and sign in by_sign:
            by_sign[sign] += value
        elif sign in by_sign:
            raise InvalidInput(f"{flag} {word!r} is not valid: {name} has another such requirement")
        else:
            by_sign[sign] = value
    return {
        name: by_sign["="] if [*by_sign] == ["="] else by_sign
        for name, by_sign in conditions.items()
    }


def _read(flag: str, word: str) -> tuple[str, str, Any]:
    """Return the label, the operator and the value of one requirement; raises InvalidInput."""
    condition = read_condition(word)
    if condition is None:
        raise InvalidInput(f"{flag} {word!r} is not valid: it must be one of {REQUIRE_FORMS}")
    return condition
