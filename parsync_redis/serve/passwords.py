"""The file of operators: each line has a name and the scrypt hash of a password."""

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidInput
from ..model.ids import shown

USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
USER_RULE: Final = "1 to 64 letters, digits or _.@+-, a letter or digit first"

LEAST_PASSWORD = 8
MOST_PASSWORD = 1000
"""Least and largest number of characters of a password."""

_N = 2**15
_R = 8
_P = 3
_SALT_BYTES = 16
_HASH_BYTES = 32
"""The parameters of scrypt that OWASP advises: a check takes 32 MiB and about 0.3 s."""

_MOST_WORK: Final = 2**22
"""The largest product of N, R and P that a line may ask for."""

_OPERATOR_LINE: Final = re.compile(
    r"([^:\s]+):scrypt:(\d{1,7}):(\d{1,3}):(\d{1,3}):([0-9a-f]{16,128}):([0-9a-f]{32,128})"
)
_LINE_RULE: Final = (
    "it must be a line that `parsync serve password` prints: NAME:scrypt:N:R:P:SALT:HASH"
)


@dataclass(frozen=True, slots=True)
class Hash:
    """The hash of a password, and the parameters of scrypt that made the hash."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def fits(self, password: str) -> bool:
        """Return whether the hash is of this password.

        Takes about 0.3 s on purpose, so that guessing takes long.
        """
        return hmac.compare_digest(
            _scrypt(password, self.salt, self.n, self.r, self.p, len(self.hash)), self.hash
        )


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    secret = password.encode(errors="surrogatepass")
    return hashlib.scrypt(
        secret, salt=salt, n=n, r=r, p=p, maxmem=2 * 128 * r * (n + p), dklen=size
    )


NOBODY: Final = Hash(_N, _R, _P, bytes(_SALT_BYTES), bytes(_HASH_BYTES))
"""The hash of no password.

The password of an unknown name is checked by this hash, so the check takes as long as for a known
name.
"""


def line_of(user: str, password: str) -> str:
    """Return the line of an operator for the file. Raises InvalidInput."""
    if not USER.fullmatch(user):
        raise InvalidInput(f"operator name {shown(user)} is not valid: it must be {USER_RULE}")
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise InvalidInput(
            f"the password has {len(password)} characters: it must have {LEAST_PASSWORD} to "
            f"{MOST_PASSWORD}"
        )
    salt = os.urandom(_SALT_BYTES)
    digest = _scrypt(password, salt, _N, _R, _P, _HASH_BYTES)
    return f"{user}:scrypt:{_N}:{_R}:{_P}:{salt.hex()}:{digest.hex()}"


def load_operators(path: Path) -> Mapping[str, Hash]:
    """Return the hash of each operator's password by name.

    Raises InvalidInput, which names the number of a bad line but does not show the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"operators file {path} cannot be read: {why}") from None
    hashes: dict[str, Hash] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"line {number} of operators file {path}"
        if not (match := _OPERATOR_LINE.fullmatch(line.strip())) or not USER.fullmatch(match[1]):
            raise InvalidInput(f"{where} is not valid: {_LINE_RULE}")
        n = int(match[2])
        r = int(match[3])
        p = int(match[4])
        if (
            n < 2
            or n & (n - 1)
            or not r
            or not p
            or n * r * p > _MOST_WORK
            or len(match[5]) % 2
            or len(match[6]) % 2
        ):
            raise InvalidInput(f"{where} is not valid: {_LINE_RULE}")
        if match[1] in hashes:
            raise InvalidInput(
                f"{where} has operator {match[1]} a second time: one line is for one operator"
            )
        hashes[match[1]] = Hash(n, r, p, bytes.fromhex(match[5]), bytes.fromhex(match[6]))
    if not hashes:
        raise InvalidInput(f"operators file {path} names nobody: {_LINE_RULE}")
    return hashes
