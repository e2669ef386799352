"""Ordinary tasks of an app with `Parsync(app)` whose server, the one that keeps parsync's state, is away."""

from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from parsync_redis import Parsync

from ..app import PARSYNC
from ..case import Context, area, raised

case = area("While parsync's server is away")


def away(c: Context) -> Any:
    """Another app of the same broker. Nobody answers where it looks for parsync's state."""
    app = Celery(
        "away",
        broker=c.app.conf.broker_url,
        backend=c.app.conf.result_backend,
        set_as_current=False,
    )
    if c.kind == PARSYNC:
        Parsync(app, "redis://127.0.0.1:1/0")

    @app.task(name="parity.ordinary", shared=False)
    def ordinary(a: int) -> int:
        return a

    return app


def revoked(c: Context) -> Any:
    """Revoke an id; whether the worker was told."""
    try:
        away(c).control.revoke(c.key)
    except OperationalError:
        assert c.kind == PARSYNC
    inspect = c.app.control.inspect(destination=[c.worker], timeout=c.reply_s)
    return c.until(lambda: c.key in ((inspect.revoked() or {}).get(c.worker) or ()), "it was told")


case(
    "delay",
    "an ordinary task",
    lambda c: c.end(away(c).tasks["parity.ordinary"].delay(1)),
    short=True,
)
case(
    "send_task",
    "an ordinary task of this app",
    lambda c: c.end(away(c).send_task("parity.ordinary", (1,))),
)
case(
    "send_task",
    "a name of another app's",
    lambda c: isinstance(raised(lambda: away(c).send_task("parity.other", (1,))), OperationalError),
    differs="refused at once with `OperationalError`: only the server knows whether that task is placed by parsync; "
    "`parsync=False` sends it to the broker",
)
case("revoke", "the workers are told", revoked)
case(
    "revoke",
    "what the caller gets",
    lambda c: isinstance(raised(lambda: away(c).control.revoke(c.key)), OperationalError),
    differs="the workers are told as usual, and then `OperationalError` says that parsync's queue did not answer",
)
