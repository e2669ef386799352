"""The rights of a submitter, and the judgement of a task by them. Pure.

A submitter is a program that submits tasks over HTTP with a token. A submitter may ask only for
what its table in the file allows. Options that the task's own app declares are not judged, because
the submitter did not choose them.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Final
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from ..model.account import limits_of
from ..model.amount import parse_amount, shown_amount
from ..model.apart import APART_PREFIX
from ..model.condition import wanted_of
from ..model.ids import shown
from ..model.limits import MAX_BATCH, MAX_BATCH_BYTES, MAX_SLOTS
from ..model.needs import QUEUE_LABEL, TAINT_LABEL, UNINTERRUPTED
from ..model.task import Submission

SUBMITTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""The name of a submitter. In the ids of its tasks a colon ends the name."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")

FIELD_RULES: Final[Mapping[str, str]] = {
    "token_sha256": "a list of texts of 64 hex digits, as `parsync serve token` prints them",
    "names": 'a list of patterns of task names, at least one, ["proj.*"]',
    "slots": f"a whole number from 1 to {MAX_SLOTS:,}",
    "resources": 'a table of the largest amounts, {mem = "4GiB"}',
    "require": 'a list of labels, each alone or with a value, ["zone", "gpu_model=a100"]',
    "tolerate": 'a list of taints, ["spot"]',
    "apart": 'a list of patterns of words, ["web*"]',
    "queues": 'a list of patterns of Celery queues, ["fast"]',
    "tenants": 'a list of patterns of tenants, ["research/*"]',
    "limits": 'a list of patterns of limits, ["customer:*"]',
    "priority": "a whole number from 0 to 9",
    "max_starts": "a whole number from 1 to 1000",
    "rate": "a number of tasks a second from 0.001 to 100000",
    "burst": "a whole number from 1 to 100000",
    "most_bytes": f"a whole number from 1 to {MAX_BATCH_BYTES}",
}
"""Field of a submitter -> its rule, as the end of a sentence that refuses a value."""


class Forbidden(Exception):
    """An error: a submitter has no right to something. The text says what it may use."""


def _check_hashes(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values or not all(_SHA256.fullmatch(value) for value in values):
        raise ValueError("no hashes")
    return values


def _check_patterns(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(0 < len(value) <= 255 and value.isprintable() for value in values):
        raise ValueError("no patterns")
    return values


Patterns = Annotated[tuple[str, ...], AfterValidator(_check_patterns)]


class Rights(BaseModel):
    """The rights of a submitter.

    resources: the largest amounts, in thousandths.
    rate: tasks per second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_sha256: Annotated[tuple[str, ...], AfterValidator(_check_hashes)]
    names: Annotated[Patterns, Field(min_length=1)]
    slots: int = Field(1, ge=1, le=MAX_SLOTS, strict=True)
    resources: Mapping[str, int] = {}
    require: Patterns = ()
    tolerate: Patterns = ()
    apart: Patterns = ()
    queues: Patterns = ()
    tenants: Patterns = ()
    limits: Patterns = ()
    priority: int = Field(0, ge=0, le=9, strict=True)
    max_starts: int = Field(3, ge=1, le=1000, strict=True)
    rate: float = Field(10.0, ge=0.001, le=100_000, allow_inf_nan=False)
    burst: int = Field(10, ge=1, le=100_000, strict=True)
    most_bytes: int = Field(256 * 2**10, ge=1, le=MAX_BATCH_BYTES, strict=True)

    @field_validator("resources", mode="before")
    @classmethod
    def _amounts(cls, table: object) -> object:
        if not isinstance(table, Mapping):
            return table
        return {name: parse_amount(name, value) for name, value in table.items()}

    @property
    def most_tasks(self) -> int:
        """Return the maximum number of tasks of a request.

        More tasks than the burst could never pass.
        """
        return min(self.burst, MAX_BATCH)

    def may_name(self, name: str) -> bool:
        """Return whether tasks of this name may be submitted."""
        return _fits(name, self.names)

    def may_use_limit(self, limit: str) -> bool:
        """Return whether tasks may be submitted under this limit."""
        return _fits(limit, self.limits)


def judge(rights: Rights, task: Submission) -> None:
    """Raise Forbidden if a submitter may not submit this task.

    The error names only what this submitter may use. task: made of what the submitter sent, without
    what its app declares.
    """
    options = task.options
    if not rights.may_name(task.name):
        raise Forbidden(
            f"you may not submit {shown(task.name)}: {_yours(rights.names, 'task names')}"
        )
    if options.priority > rights.priority:
        raise Forbidden(
            f"priority={options.priority} is too high: you may ask for {rights.priority} at most"
        )
    if options.max_starts is not None and options.max_starts > rights.max_starts:
        raise Forbidden(
            f"max_starts={options.max_starts} is too high: you may ask for {rights.max_starts} at "
            "most"
        )
    if options.needs.slots > rights.slots:
        raise Forbidden(
            f"slots={options.needs.slots} is too high: you may ask for {rights.slots} at most"
        )
    if options.tenant and not _fits(options.tenant, rights.tenants):
        raise Forbidden(
            f"you may not use tenant={shown(options.tenant)}: {_yours(rights.tenants, 'tenants')}"
        )
    for limit in limits_of(options.limits):
        if not rights.may_use_limit(limit.name):
            raise Forbidden(
                f"you may not use limit {shown(limit.name)}: {_yours(rights.limits, 'limits')}"
            )
    for name, amount in options.needs.amounts:
        _judge_amount(rights, name, amount)
    for name, condition in options.needs.labels:
        _judge_label(rights, name, condition)


def _judge_amount(rights: Rights, name: str, amount: int) -> None:
    if name.startswith(APART_PREFIX):
        if not _fits(word := name.removeprefix(APART_PREFIX), rights.apart):
            raise Forbidden(
                f"you may not use apart={shown(word)}: {_yours(rights.apart, 'words of apart')}"
            )
    elif name not in rights.resources:
        raise Forbidden(
            f"you may not ask for resource {name}: {_yours(rights.resources, 'resources')}"
        )
    elif amount > (most := rights.resources[name]):
        reason = f"resource {name}={shown_amount(amount)} is too much"
        raise Forbidden(f"{reason}: you may ask for {shown_amount(most)} at most")


def _judge_label(rights: Rights, name: str, condition: str) -> None:
    if name in (QUEUE_LABEL, TAINT_LABEL):
        queue = name == QUEUE_LABEL
        option, allowed = ("queue", rights.queues) if queue else ("tolerate", rights.tolerate)
        for word in [unquote(condition)] if queue else condition.split("|"):
            if not _fits(word, allowed):
                plural = "queues" if queue else "taints to tolerate"
                raise Forbidden(
                    f"you may not use {option}={shown(word)}: {_yours(allowed, plural)}"
                )
        return
    if name in rights.require or (name, condition) == UNINTERRUPTED:
        return
    values = wanted_of(condition)
    if values is None or not all(f"{name}={value}" in rights.require for value in values):
        raise Forbidden(
            f"you may not require {name}:{condition}: {_yours(rights.require, 'requirements')}"
        )


def _fits(word: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)


def _yours(allowed: Iterable[str], plural: str) -> str:
    """Return the end of a refusal: what this submitter may use."""
    return f"your {plural} are {', '.join(allowed)}" if allowed else f"you have no {plural}"
