"""The sessions of operators, and the marks of forms.

Sessions are in memory, so a restart logs everybody out.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final

SESSION_S: Final = 8 * 3600.0
"""Seconds from the login to the end of a session."""

MOST_SESSIONS: Final = 1000
"""Maximum number of sessions; beyond, the oldest session ends."""


class Sessions:
    """Sessions by their tokens, which only the browser of the operator has.

    The caller says what time it is, in seconds from any start.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @staticmethod
    def new_token() -> str:
        """Return a new token, for a session or for the login form."""
        return secrets.token_urlsafe(32)

    def open(self, user: str, now_s: float) -> str:
        """Begin a session of an operator, and return its token."""
        token = self.new_token()
        self._open[token] = (user, now_s)
        while len(self._open) > MOST_SESSIONS:
            self._open.popitem(last=False)
        return token

    def user(self, token: str, now_s: float) -> str | None:
        """Return the operator of a session; None if there is no such session."""
        user, since_s = self._open.get(token, ("", 0.0))
        if not user:
            return None
        if now_s - since_s >= SESSION_S:
            del self._open[token]
            return None
        return user

    def close(self, token: str) -> None:
        """End a session."""
        self._open.pop(token, None)

    def mark(self, who: str) -> str:
        """Return the mark of a form, which proves that this process made the form for `who`.

        who: a token, or the name of an operator.
        """
        return hmac.new(self._key, who.encode(), hashlib.sha256).hexdigest()

    def is_mark(self, who: str, mark: str) -> bool:
        """Return whether this is the mark of a form for `who`."""
        return hmac.compare_digest(self.mark(who).encode(), mark.encode(errors="surrogatepass"))
