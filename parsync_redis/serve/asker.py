"""Questions that the survey does not answer, such as one task.

Redis is asked one question at a time. Everybody who asks the same question gets one answer.
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
from .shares import OWNER, Shares

ANSWER_KEPT_S: Final = 1.0
"""Seconds for which an answer is given again to equal questions."""

MOST_QUESTIONS: Final = 200
"""Maximum number of waiting questions, and of kept answers. An address gets at most half of them.
"""


@dataclass(slots=True)
class _Answer:
    """The answer to a question, perhaps still to come.

    ended_s: when the answer came, monotonic; infinite until then.
    """

    future: asyncio.Future[Any]
    ended_s: float = math.inf

    def end(self, _: object) -> None:
        self.ended_s = time.monotonic()


class Asker:
    """Asks Redis in a thread of its own. Call its methods only from the event loop."""

    def __init__(self, client: ParsyncClient) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(1, "asker")
        self._answers: dict[Any, _Answer] = {}
        self._shares = Shares(MOST_QUESTIONS)

    async def ask(self, key: Any, question: Callable[[ParsyncClient], Any]) -> Any:
        """Return the answer to a question.

        key: equal for equal questions. Raises what the question raises, and HTTPException 503 if
        too many questions wait.
        """
        now_s = time.monotonic()
        self._answers = {
            key: answer
            for key, answer in self._answers.items()
            if now_s - answer.ended_s < ANSWER_KEPT_S
        }
        if key not in self._answers:
            ended = [key for key, answer in self._answers.items() if answer.ended_s < math.inf]
            owner = OWNER.get()
            if not self._shares.take(owner):
                raise HTTPException(
                    503, "too many questions at a time: ask again in a second", {"Retry-After": "1"}
                )
            call = partial(question, self._client)
            answer = _Answer(asyncio.get_running_loop().run_in_executor(self._thread, call))
            answer.future.add_done_callback(answer.end)
            answer.future.add_done_callback(lambda _: self._shares.give_back(owner))
            self._answers[key] = answer
            self.forget(*ended[:-MOST_QUESTIONS])  # answers come in the order of the questions
        return await asyncio.shield(self._answers[key].future)

    def forget(self, *keys: Any) -> None:
        """Forget the answers to these keys: what the answers say has changed."""
        for key in keys:
            self._answers.pop(key, None)

    def close(self) -> None:
        """End the thread; waiting questions are not asked."""
        self._thread.shutdown(wait=False, cancel_futures=True)
