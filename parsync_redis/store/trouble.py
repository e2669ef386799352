"""What an error of redis-py means to who asked: the server is away, refuses the login, or is another one."""

import ssl

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..errors import AccessDenied, ParsyncError, ServerUnfit, ServerUnreachable


def translate(address: str, error: Exception) -> Exception:
    """The error to raise `from None` instead of what redis-py or the system raised; other errors as they are."""
    if isinstance(error, AuthenticationError | AuthorizationError):
        return AccessDenied(f"the server at {address} refuses the login: {error}")
    if is_denied(error):
        return denied(address, "", error)
    if reason := _untrusted(error):
        mend = "ssl_ca_certs in its address names the CA"
        return ServerUnfit(f"the server at {address} is not trusted: {reason}; {mend}")
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
        return ServerUnreachable(f"no answer from the server at {address}: {error}")
    return error


def is_denied(error: object) -> bool:
    """Whether an error reply says that the login may not do this, by itself or inside a script."""
    if isinstance(error, NoPermissionError):
        return True
    return isinstance(error, ResponseError) and ("NOPERM" in str(error) or "ACL failure in script" in str(error))


def denied(address: str, what: str, error: object) -> ParsyncError:
    """The error that says what this login may not do, and the mend."""
    return AccessDenied(
        f"the login at {address} may not do this: {what}{': ' if what else ''}{error}; "
        "`parsync acl` prints what each role needs"
    )


def _untrusted(error: BaseException | None) -> str:
    """Why TLS did not accept the server's certificate, '' if that is not what happened."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return str(error).partition("verify failed:")[2].partition(" (_ssl")[0].strip() or str(error)
        error = error.__cause__ or error.__context__
    return ""
