"""The flags of `submit` and `plan` for the options of a task, made from model/options.py."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

from ..model.option import Option
from ..model.options import OPTIONS
from .common import parse_pairs
from .requirements import parse_requirements


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
    return value
