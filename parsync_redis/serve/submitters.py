"""The file of submitters, which says who may submit tasks over HTTP, with which token."""

import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ..errors import InvalidInput
from ..model.ids import MAX_ID, shown
from .rate import RateBucket
from .rights import FIELD_RULES, SUBMITTER_NAME, Rights

MOST_FILE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class KnownSubmitter:
    """A program that submits tasks. bucket: limits its rate."""

    name: str
    rights: Rights
    bucket: RateBucket = field(compare=False)

    @property
    def prefix(self) -> str:
        """Return the text that begins the ids of its tasks, and of no other tasks."""
        return f"{self.name}:"

    def check_id(self, id: object) -> str:
        """Return the id that the submitter gives to a task. Raises InvalidInput."""
        if (
            not isinstance(id, str)
            or not id.startswith(self.prefix)
            or not len(self.prefix) < len(id) <= MAX_ID
            or not id.isprintable()
        ):
            rule = (
                f"it must begin with {self.prefix!r}, and have {MAX_ID} characters at most, all "
                "printable"
            )
            raise InvalidInput(f"task id {shown(id)} is not valid: {rule}")
        return id


class Submitters:
    """All submitters of a file, found by their tokens."""

    def __init__(self, rights: Mapping[str, Rights]) -> None:
        self._submitters = [
            KnownSubmitter(name, own_rights, RateBucket(own_rights.rate, own_rights.burst))
            for name, own_rights in rights.items()
        ]

    def find(self, token: str) -> KnownSubmitter | None:
        """Return the submitter with this token; None if there is none.

        The search takes equally long for all tokens of one length.
        """
        token_hash = hash_token(token).encode()
        match = None
        for submitter in self._submitters:
            for hash in submitter.rights.token_sha256:
                if hmac.compare_digest(token_hash, hash.encode()):
                    match = submitter
        return match


def hash_token(token: str) -> str:
    """Return the hash of a token, for the file. A token is random, so a fast hash is enough."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def load_submitters(path: Path) -> Submitters:
    """Read the file of submitters. Raises InvalidInput, which says what is wrong."""
    rights: dict[str, Rights] = {}
    owners: dict[str, str] = {}
    for name, table in _read(path).items():
        if not SUBMITTER_NAME.fullmatch(name):
            rule = "1 to 64 letters, digits or _.-, a letter or digit first"
            raise InvalidInput(
                f"submitter name {shown(name)} in {path} is not valid: it must be {rule}"
            )
        if not isinstance(table, dict):
            raise InvalidInput(f"{name} in {path} is not a table: a submitter is a table [{name}]")
        rights[name] = _rights(path, name, table)
        for hash in rights[name].token_sha256:
            if (owner := owners.setdefault(hash, name)) != name:
                raise InvalidInput(
                    f"submitters {owner} and {name} in {path} have one token: give each its own"
                )
    if not rights:
        raise InvalidInput(
            f"submitters file {path} names nobody: it must have a table [NAME] for each submitter"
        )
    return Submitters(rights)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise InvalidInput(
                f"submitters file {path} is too large: it may have {MOST_FILE_BYTES:,} bytes"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"submitters file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"submitters file {path} is not TOML: {error}") from None


def _rights(path: Path, name: str, table: Mapping[str, Any]) -> Rights:
    if unknown := [key for key in table if key not in FIELD_RULES]:
        raise InvalidInput(
            f"unknown field {shown(unknown[0])} of submitter {name} in {path}: known are "
            f"{', '.join(FIELD_RULES)}"
        )
    if missing := [key for key in ("token_sha256", "names") if key not in table]:
        raise InvalidInput(
            f"submitter {name} in {path} has no {missing[0]}: it must be {FIELD_RULES[missing[0]]}"
        )
    try:
        return Rights(**table)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        refusal = f"field {key}={shown(table[key])} of submitter {name} in {path} is not valid"
        raise InvalidInput(f"{refusal}: it must be {FIELD_RULES[key]}") from None
