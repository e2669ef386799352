"""The flags of `parsync submit` for a task's options, made of the table in model/options.py."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

from ..model.option import Option
from ..model.options import OPTIONS
from .common import parse_pairs
from .requirements import parse_requirements


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes **flags a flag for each option, as typer reads its signature."""
    parameters = list(inspect.signature(command).parameters.values())[:-1]
    hints = get_type_hints(command, include_extras=True)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    flags = [
        inspect.Parameter(
            _variable(option),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=_flag(option),
        )
        for option in OPTIONS
    ]
    found = inspect.Signature([*own[:3], *flags, *own[3:]])
    vars(command).update(__signature__=found)
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in found.parameters.values()
    }
    return command


def from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the flags ask for by name of option, None for nothing; raises InvalidInput."""
    return {option.name: _asked(option, flags[_variable(option)]) for option in OPTIONS}


def _variable(option: Option) -> str:
    return option.flag.removeprefix("--").replace("-", "_")


def _flag(option: Option) -> Any:
    value = list[str] if option.value in (Mapping, list) else option.value
    flag = (
        f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        if option.default is True
        else option.flag
    )
    return Annotated[value | None, typer.Option(flag, help=option.help)]


def _asked(option: Option, value: Any) -> Any:
    if option.name == "require":
        return parse_requirements(option.flag, value) or None
    if option.value is Mapping:
        return parse_pairs(option.flag, value) or None
    return value
