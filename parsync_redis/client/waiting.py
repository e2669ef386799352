"""Waiting for the ends of tasks."""

import time
from typing import Final

from ..model.ids import decode_id
from ..model.limits import MAX_BATCH
from ..model.task import FINAL
from .requests import Requests

_FIRST_POLL_PAUSE_S: Final = 0.002
_LONGEST_POLL_PAUSE_S: Final = 0.050
_MAX_IDS_SHOWN: Final = 3


def wait_until_final(requests: Requests, ids: list[str], timeout: float | None) -> None:
    """Wait until every task is final or gone.

    ids: encoded. timeout: seconds, None for ever. Raises TimeoutError with the number of tasks that
    are not final.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pause_s = _FIRST_POLL_PAUSE_S
    waiting = ids
    while waiting:
        # Only the head is polled: the others cannot end the wait before it does, and most will be
        # final by then.
        head = waiting[:MAX_BATCH]
        tail = waiting[MAX_BATCH:]
        head = _not_final(requests, head)
        waiting = head + tail
        if not head:
            continue
        if deadline is not None and time.monotonic() >= deadline:
            if late := head + _not_final(requests, tail):
                shown = ", ".join(map(decode_id, late[:_MAX_IDS_SHOWN])) + (
                    ", ..." if len(late) > _MAX_IDS_SHOWN else ""
                )
                raise TimeoutError(
                    f"{len(late)} of {len(ids)} tasks are not final after {timeout:g} s: {shown}"
                )
            break
        requests.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_POLL_PAUSE_S)


def _not_final(requests: Requests, ids: list[str]) -> list[str]:
    states = requests.in_batches(ids, requests.store.states)
    return [id for id, state in zip(ids, states, strict=True) if state and state not in FINAL]
