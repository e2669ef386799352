"""Questions that a survey does not answer, such as one task: asked of Redis one at a time, and once
for all who ask.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.exceptions import HTTPException

from ..client import ParsyncClient
from .shares import ADDRESS, Shares

KEPT_S: Final = 1.0
"""For how long after it came an answer is given again to whoever asks the same."""

MOST: Final = 200
"""Questions that wait; more are told to come again. Those of one address are half of them at most.

As many answers are kept, the newest.
"""


@dataclass(slots=True)
class _Question:
    answer: asyncio.Future[Any]
    ended_s: float = math.inf

    def end(self, _: object) -> None:
        self.ended_s = time.monotonic()


class Asker:
    """Asks in one thread. Call it from the event loop only."""

    def __init__(self, client: ParsyncClient) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(1, "asker")
        self._kept: dict[Any, _Question] = {}
        self._shares = Shares(MOST)

    async def ask(self, key: Any, question: Callable[[ParsyncClient], Any]) -> Any:
        """Return the answer to a question.

        key: equal for equal questions. Raises what the question raises.
        """
        now_s = time.monotonic()
        self._kept = {key: one for key, one in self._kept.items() if now_s - one.ended_s < KEPT_S}
        if key not in self._kept:
            ended = [key for key, one in self._kept.items() if one.ended_s < math.inf]
            owner = ADDRESS.get()
            if not self._shares.take(owner):
                raise HTTPException(
                    503, "too many questions at a time: ask again in a second", {"Retry-After": "1"}
                )
            asked = partial(question, self._client)
            one = _Question(asyncio.get_running_loop().run_in_executor(self._thread, asked))
            one.answer.add_done_callback(one.end)
            one.answer.add_done_callback(lambda _: self._shares.give_back(owner))
            self._kept[key] = one
            self.forget(*ended[:-MOST])  # they ended in the order in which they were asked
        return await asyncio.shield(self._kept[key].answer)

    def forget(self, *keys: Any) -> None:
        """Keep these answers no longer: what they tell has changed."""
        for key in keys:
            self._kept.pop(key, None)

    def close(self) -> None:
        """End the thread; waiting questions are not asked."""
        self._thread.shutdown(wait=False, cancel_futures=True)
