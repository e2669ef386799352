"""From what a caller asks to a submission, and from a refusal to the error that says why."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final
from uuid import uuid4

from .errors import BrokenContract, Infeasible, InvalidInput, ParsyncError, UnknownTask
from .model.ids import check_name, shown
from .model.limits import MAX_BATCH_BYTES
from .model.task import CELERY_OPTIONS, DEFAULT_OPTIONS, Submission, TaskOptions
from .placement.infeasible import explain_infeasible
from .store.store import Store
from .store.views import read_names, read_offers

Item = Mapping[str, Any]
"""The arguments of `ParsyncClient.submit` by name."""

TASK_OPTIONS: Final = ("slots", "resources", "require", "priority", "strategy", "wait_for_capacity")
ITEM_KEYS: Final = ("name", "args", "kwargs", "id", "countdown", *TASK_OPTIONS, *CELERY_OPTIONS)
_SHOWN: Final = 8


def parse_item(item: Item | Sequence[Any]) -> Item:
    """A task as `submit_many` takes it: a mapping of ITEM_KEYS, or (name,), (name, args), (name, args, kwargs)."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)) and 1 <= len(item) <= 3:
        return dict(zip(("name", "args", "kwargs"), item, strict=False))
    raise InvalidInput(f"{shown(item)} is not a task: it must be (name, args, kwargs) or a mapping with these keys")


def make_submission(item: Item) -> Submission:
    """Checks everything about a task and makes its message; raises InvalidInput. An id is made up if none is given."""
    from .wire.message import make_message  # with it comes Celery, which a client that only looks does without

    rest = dict(item)
    name = check_name("task name", rest.pop("name", None))
    args, kwargs = rest.pop("args", ()), rest.pop("kwargs", None)
    given = rest.pop("id", None)
    id = str(uuid4()) if given is None else check_name("task id", given)
    if not rest:
        return Submission(id, name, make_message(name, args, kwargs, id))
    delay_ms = _delay_ms(rest.pop("countdown", None))
    task_options: dict[str, Any] = {option: rest.pop(option) for option in TASK_OPTIONS if option in rest}
    for option in rest:
        if option not in CELERY_OPTIONS:
            raise InvalidInput(f"unknown option {shown(option)}: known are {', '.join(ITEM_KEYS[3:])}")
    options = TaskOptions.of(task_options) if task_options else DEFAULT_OPTIONS
    celery_options = {option: value for option, value in rest.items() if value is not None}
    message = make_message(name, args, kwargs, id, **celery_options)
    return Submission(id, name, message, options, delay_ms, expiry_ms=_expiry_ms(celery_options.get("expires")))


def _expiry_ms(expires: float | datetime | None) -> int | None:
    """After how long a task expires, of an `expires` that the message took."""
    from .wire.message import until_ms

    if expires is None:
        return None
    return max(0, until_ms("expires", expires) if isinstance(expires, datetime) else round(expires * 1000))


def _delay_ms(countdown: object) -> int | None:
    if countdown is None:
        return None
    if not isinstance(countdown, (int, float)) or isinstance(countdown, bool) or not 0 <= countdown <= 1e9:
        raise InvalidInput(f"countdown={shown(countdown)} is not valid: it must be a number of seconds from 0 to 1e9")
    return round(countdown * 1000) or None


def split_by_size(tasks: Sequence[Submission]) -> Iterator[Sequence[Submission]]:
    """The tasks in runs whose messages make up no more than one request may have."""
    start = size = 0
    for at, task in enumerate(tasks):
        size += len(task.message)
        if size > MAX_BATCH_BYTES and at > start:
            yield tasks[start:at]
            start, size = at, len(task.message)
    yield tasks[start:]


def explain_refusal(store: Store, task: Submission, word: str) -> ParsyncError | None:
    """The error for submit's word on a task; None if it was accepted. Reads what nodes offer only to explain."""
    if word in ("submitted", "exists"):
        return None
    if word == "unknown":
        return UnknownTask(explain_unknown(task.name, read_names(store)))
    if word == "infeasible":
        why = explain_infeasible(task.options.needs, read_offers(store))
        return Infeasible(f"{why} (task {task.name}; wait_for_capacity=True would let it wait)")
    return BrokenContract(f"submit: answered {shown(word)} for task {task.id}")


def explain_unknown(name: str, known: Sequence[str]) -> str:
    """Names the close matches and some of the names that nodes know."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else ";"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"no node knows a task {shown(name)}{hint} known are {', '.join(names[:_SHOWN])}{more}"
