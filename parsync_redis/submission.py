"""Make submissions from what callers ask for, and errors from refused submissions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypedDict, TypeVar

from .errors import (
    BrokenContract,
    Infeasible,
    InvalidInput,
    ParsyncError,
    UnknownLimit,
    UnknownTask,
)
from .model.account import TENANT_MARK, limits_of, pattern_of
from .model.allotment import is_allotment
from .model.apps import digest_of
from .model.ids import check_name, encode_id, new_id, shown
from .model.limits import MAX_BATCH_BYTES, MAX_KINDS_BYTES
from .model.needs import QUEUE_LABEL, Resources, without
from .model.options import CLIENT_NAMES, DEFAULT_OPTIONS, MAX_SECONDS, TaskOptions, unknown_option
from .model.parameters import Arguments, fill
from .model.task import Submission
from .placement.fits import explain_infeasible
from .store.reads.views import Directory, read_names, read_offers
from .store.store import Store
from .wire.message_options import CELERY_OPTIONS, until_ms

T = TypeVar("T")
U = TypeVar("U")

Item = Mapping[str, Any]
"""The arguments of `ParsyncClient.submit` by name."""


class PlanOptions(TypedDict, total=False):
    """The keyword options of `plan`, for type checkers: what a task asks for.

    docs/options.md has the table; tests/unit/test_options.py compares the two.
    """

    slots: int
    resources: Mapping[str, int | float | str]
    require: Mapping[str, Any]  # Any: a value, a list of values, or {operator: value}
    tolerate: list[str]
    apart: str
    near: str
    priority: int
    strategy: str
    prefer: list[str | Mapping[str, Any]]  # Any: as in require, or a rank by value
    wait_for_capacity: bool
    max_starts: int | None
    avoid_last: bool
    interruptible: bool
    tenant: str
    limits: list[str] | Mapping[str, int]


class SubmitOptions(PlanOptions, total=False):
    """The keyword options of `submit`, for type checkers: those of `plan`, and those of Celery."""

    queue: str | None
    time_limit: float | None
    soft_time_limit: float | None
    ignore_result: bool | None
    shadow: str | None
    serializer: str | None
    headers: Mapping[str, Any] | None  # Any: the values of headers are the caller's
    link: Any  # Any: a signature of Celery, or several
    link_error: Any  # Any: as of link
    reply_to: str | None
    root_id: str | None
    parent_id: str | None


ITEM_KEYS: Final = (
    "name",
    "args",
    "kwargs",
    "id",
    "countdown",
    "queue",
    *CLIENT_NAMES,
    *CELERY_OPTIONS,
)
Declared = Mapping[str, Mapping[str, Any] | None]
"""Task name -> the options that its worker's app declares, None for none.

Names that no worker knows are missing.
"""

ACCEPTED: Final = frozenset(("submitted", "exists"))
"""Words of submit for a task that is in the queue now, or was in the queue before."""

_NAMES_SHOWN: Final = 8

_KIND_HEAD_BYTES: Final = 400
"""The bytes of a kind without needs, limits and preferences: priority, name, strategy, tenant."""


def parse_item(item: Item | Sequence[Any]) -> Item:
    """Return a task of `submit_many` as a mapping with keys of ITEM_KEYS.

    item: such a mapping, (name,), (name, args) or (name, args, kwargs). Raises InvalidInput.
    """
    if type(item) is dict or isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)) and 1 <= len(item) <= 3:
        return dict(zip(("name", "args", "kwargs"), item, strict=False))
    raise InvalidInput(
        f"{shown(item)} is not a task: it must be (name, args, kwargs) or a mapping with these keys"
    )


def make_submission(
    item: Item, declared: Declared | None = None, make_id: Callable[[], str] = new_id
) -> Submission:
    """Check a task and make its message; a task without an id gets one. Raises InvalidInput.

    declared: options that apps declare, which apply where the caller sets none; None for a task
    without declared options. If no worker knows the task yet, its message carries the caller's
    options, and the worker that gets the message adds the options that its app declares.

    A parameter in the caller's own tenant or limits needs an argument by name. Of the parameters in
    declared ones the app has told the positions.
    """
    make_message, inherited_tenant = _message_makers()
    inherited = inherited_tenant()
    options_left = dict(item)
    name = check_name("task name", options_left.pop("name", None))
    args = options_left.pop("args", ())
    kwargs = options_left.pop("kwargs", None)
    given_id = options_left.pop("id", None)
    id = make_id() if given_id is None else given_id
    key = encode_id(id)
    app_options = (declared or {}).get(name)
    unknown = declared is not None and name not in declared
    if not options_left and not app_options and not unknown and not inherited:
        return Submission(key, name, make_message(name, args, kwargs, id))
    delay_ms = _delay_ms(options_left.pop("countdown", None))
    task_options: dict[str, Any] = {
        option: options_left.pop(option) for option in CLIENT_NAMES if option in options_left
    }
    queue = check_queue(options_left.pop("queue", None))
    for option in options_left:
        if option not in CELERY_OPTIONS:
            raise unknown_option("option", option, ITEM_KEYS[3:], options_left[option])
    celery_options = {option: value for option, value in options_left.items() if value is not None}
    task_options = dict(fill(task_options, Arguments(name, args, kwargs)))
    if unknown:
        caller_options = {**task_options, **({"queue": queue} if queue else {})}
        carried = {"parsync": {"options": caller_options, "undeclared": True}}
        celery_options["headers"] = {**check_headers(celery_options.get("headers")), **carried}
    if app_options:
        names = app_options.get("parameters", ())
        # what the caller replaces needs no argument of the call
        not_replaced = {k: v for k, v in app_options.items() if task_options.get(k) is None}
        declared_options = fill(not_replaced, Arguments(name, args, kwargs, names))
        task_options = {**declared_options, **task_options}
        queue = queue or str(task_options.pop("queue", ""))
        celery_options.setdefault("expires", task_options.pop("expires", None))
        task_options = {
            option: value for option, value in task_options.items() if option in CLIENT_NAMES
        }
        if celery_options["expires"] is None:
            del celery_options["expires"]
    if inherited and task_options.get("tenant") is None:
        task_options["tenant"] = inherited
    options = TaskOptions.of(task_options, queue) if task_options or queue else DEFAULT_OPTIONS
    message = make_message(
        name, args, kwargs, id, queue=queue, tenant=options.tenant, **celery_options
    )
    return Submission(
        key, name, message, options, delay_ms, expiry_ms=_expiry_ms(celery_options.get("expires"))
    )


@cache
def _message_makers() -> tuple[Callable[..., bytes], Callable[[], str]]:
    """Return make_message and inherited_tenant.

    Their import brings Celery, which a client that only reads lacks.
    """
    from .wire.message import make_message
    from .wire.tenant import inherited_tenant

    return make_message, inherited_tenant


def check_queue(queue: object) -> str:
    """Return the name of a Celery queue, '' for None; raises InvalidInput."""
    if queue is None or (isinstance(queue, str) and 0 < len(queue) <= 255 and queue.isprintable()):
        return queue or ""
    raise InvalidInput(
        f"queue={shown(queue)} is not valid: it must be the name of a queue, 1 to 255 printable "
        "characters"
    )


def check_headers(headers: object) -> Mapping[str, Any]:
    """Return the headers of a message, {} for None; raises InvalidInput."""
    if headers is None or isinstance(headers, Mapping):
        return headers or {}
    raise InvalidInput(f"headers={shown(headers)} is not valid: it must be a mapping")


def _expiry_ms(expires: float | datetime | None) -> int | None:
    """Return the ms until a task expires, for an `expires` that the message accepted."""
    if expires is None:
        return None
    return max(
        0, until_ms("expires", expires) if isinstance(expires, datetime) else round(expires * 1000)
    )


def _delay_ms(countdown: object) -> int | None:
    if countdown is None:
        return None
    if (
        not isinstance(countdown, (int, float))
        or isinstance(countdown, bool)
        or not 0 <= countdown < MAX_SECONDS
    ):
        raise InvalidInput(
            f"countdown={shown(countdown)} is not valid: it must be a number of seconds from 0 to "
            f"{MAX_SECONDS:.0e}"
        )
    return round(countdown * 1000) or None


def numbered(make: Callable[[T], U], tasks: Sequence[T], first: int) -> list[U]:
    """Call `make` on each task and return the results in order.

    Raises InvalidInput of `make` with the number of its task; the first task has the number
    `first`.
    """
    outputs: list[U] = []
    try:
        for task in tasks:
            outputs.append(make(task))  # noqa: PERF401 # After an error, its length is needed.
    except InvalidInput as error:
        raise type(error)(f"task {first + len(outputs)}: {error}") from None
    return outputs


def split_by_size(tasks: Sequence[Submission]) -> Iterator[Sequence[Submission]]:
    """Split tasks into runs whose messages, and whose kinds, fit into one request."""
    sizes = {id(task.options): _kind_bytes(task.options) for task in tasks}
    most_kinds_bytes = len(tasks) * max(sizes.values(), default=0)
    message_bytes = sum([len(task.message) for task in tasks])
    if message_bytes <= MAX_BATCH_BYTES and most_kinds_bytes <= MAX_KINDS_BYTES:
        yield tasks
        return
    start = size = kinds = 0
    for position, task in enumerate(tasks):
        size += len(task.message)
        kinds += _kind_bytes(task.options)
        if (size > MAX_BATCH_BYTES or kinds > MAX_KINDS_BYTES) and position > start:
            yield tasks[start:position]
            start = position
            size = len(task.message)
            kinds = _kind_bytes(task.options)
    yield tasks[start:]


def _kind_bytes(options: TaskOptions) -> int:
    """Return the maximum number of bytes of the kind of a task with these options."""
    return _KIND_HEAD_BYTES + sum(map(len, (options.needs.text, options.limits, options.prefer)))


def explain_refusal(store: Store, task: Submission, word: str) -> ParsyncError | None:
    """Return the error for submit's word on a task, None if the task was accepted.

    Reads what nodes offer only if there is an error.
    """
    if word in ACCEPTED:
        return None
    if word == "unknown":
        return UnknownTask(explain_unknown(task.name, read_names(store)))
    if word == "infeasible":
        return infeasible(task.name, *_judged(store, task))
    if word == "nolimit":
        return UnknownLimit(explain_unknown_limit(task, read_limits(store, task)))
    return BrokenContract(f"submit: answered {shown(word)} for task {task.id}")


def read_limits(store: Store, task: Submission) -> list[str]:
    """Return the limits that the policy in the shard of a task has: `stripe`, `customer:*`."""
    policy = store.hash(store.keys.in_shard_of("policy", task.id))
    return sorted(
        account
        for account in policy
        if not account.startswith(TENANT_MARK) and not is_allotment(account)
    )


def refused_limit(store: Store, task: Submission) -> UnknownLimit | None:
    """Return the error that submit would raise for a limit that nobody knows, None for none."""
    if not task.options.limits or task.options.wait_for_capacity:
        return None
    known_limits = read_limits(store, task)
    if not unknown_limit(task, known_limits):
        return None
    return UnknownLimit(explain_unknown_limit(task, known_limits))


def unknown_limit(task: Submission, known_limits: Sequence[str]) -> str:
    """Return the first limit of a task that nobody knows, '' if all are known."""
    names = [account.name for account in limits_of(task.options.limits)]
    limits = {*known_limits}
    return next((name for name in names if not {name, pattern_of(name)} & limits), "")


def explain_unknown_limit(task: Submission, known_limits: Sequence[str]) -> str:
    """Return the sentence that names the limit that nobody knows, and known limits."""
    unknown = unknown_limit(task, known_limits) or task.options.limits
    hint = _hint(unknown, known_limits) if known_limits else "; there are no limits"
    return (
        f"no limit {shown(unknown)}{hint} (task {task.name}; wait_for_capacity=True would let it "
        "wait)"
    )


def infeasible(name: str, needs: Resources, offers: Mapping[str, Resources]) -> Infeasible:
    """Return the error for a task that none of these nodes could ever hold."""
    return Infeasible(
        f"{explain_infeasible(needs, offers)} (task {name}; wait_for_capacity=True would let it "
        "wait)"
    )


def _judged(store: Store, task: Submission) -> tuple[Resources, Mapping[str, Resources]]:
    """Return what submit compared: needs without a queue, offers of nodes that know the name."""
    needs = task.options.needs
    knowing = {app.digest for app in Directory(store).newest_first() if task.name in app.declared}
    offers = {
        node: offer
        for node, offer in read_offers(store).items()
        if digest_of(offer) in ("", *knowing)
    }
    return without(needs, QUEUE_LABEL), offers


def explain_unknown(name: str, known_names: Sequence[str]) -> str:
    """Return the sentence that names close matches, and some names that nodes know."""
    return f"no node knows a task {shown(name)}{_hint(name, known_names)}"


def _hint(name: str, known_names: Sequence[str]) -> str:
    """Return the end of a refusal: names like `name`, and some of the known names."""
    names = sorted(known_names)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else ";"
    not_named = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    named = ", ".join(names[:_NAMES_SHOWN])
    return f"{hint} known are {named}{not_named}"
