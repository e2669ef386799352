"""An option of a task: a row of the table in model/options.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInput
from .ids import shown


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a task.

    default: its value if it is not asked for; None is as if it were not asked for, if that is the default. valid and
    rule: what a value must be, as a check and in an error's words. flag, help: of `parsync submit`; value: the type
    that the flag takes, Mapping for NAME=VALUE (repeat), list for one of several texts (repeat). example: a value that
    is not the default.

    stored: the task's record keeps it in a field of that name, so that a retry and a requeue have it too; any other
    matters at the submit only, or is part of the record's needs. celerys: Celery has an option of that name, which goes
    before it: the client takes that one.
    """

    name: str
    default: Any
    valid: Callable[[Any], bool]
    rule: str
    flag: str
    value: type
    help: str
    example: Any
    stored: bool = False
    celerys: bool = False

    def check(self, value: object) -> Any:
        """Return a value that was asked for; raises InvalidInput with the rule."""
        if value is None and self.default in (None, ""):
            return self.default
        if not self.valid(value):
            raise InvalidInput(f"{self.name}={shown(value)} is not valid: it must be {self.rule}")
        return value
