"""The sessions of operators who have logged in, and the marks of forms.

In memory: a restart logs everybody out.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final

KEPT_S: Final = 8 * 3600.0
"""A session ends so long after the login."""

MOST_SESSIONS: Final = 1000
"""Of more sessions the oldest ends."""


class Sessions:
    """Sessions by their tokens, which only the browser of the operator has.

    The caller says what time it is.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @staticmethod
    def new_token() -> str:
        """Return a new token: of a session, or of a browser that has none yet."""
        return secrets.token_urlsafe(32)

    def open(self, user: str, now_s: float) -> str:
        """Begin a session of a user and return its token."""
        token = self.new_token()
        self._open[token] = (user, now_s)
        while len(self._open) > MOST_SESSIONS:
            self._open.popitem(last=False)
        return token

    def user(self, token: str, now_s: float) -> str | None:
        """Return whose session it is, None if there is none."""
        user, since_s = self._open.get(token, ("", 0.0))
        if not user:
            return None
        if now_s - since_s >= KEPT_S:
            del self._open[token]
            return None
        return user

    def close(self, token: str) -> None:
        """End a session."""
        self._open.pop(token, None)

    def mark(self, who: str) -> str:
        """Return the mark of a form: it proves that this process made the form for `who`, a token
        or a user's name.
        """
        return hmac.new(self._key, who.encode(), hashlib.sha256).hexdigest()

    def is_mark(self, who: str, given: str) -> bool:
        """Return whether this is the mark of a form for `who`."""
        return hmac.compare_digest(self.mark(who).encode(), given.encode(errors="surrogatepass"))
