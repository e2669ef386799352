"""Questions that a survey does not answer: equal ones are asked once, and for a second after the
answer.
"""

import asyncio
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from parsync_redis.serve.asker import ANSWER_KEPT_S, MOST_QUESTIONS, Asker
from parsync_redis.serve.shares import OWNER
from tests.kit.waiting import happened


def test_an_answer_is_kept_from_when_it_came(monkeypatch):
    now_s = [100.0]
    asked = []
    monkeypatch.setattr(
        "parsync_redis.serve.asker.time", SimpleNamespace(monotonic=lambda: now_s[0])
    )
    client: Any = None
    asker = Asker(client)

    def question(_):
        asked.append(now_s[0])
        now_s[0] += 5 * ANSWER_KEPT_S
        return len(asked)

    async def ask():
        assert [*await asyncio.gather(asker.ask("a", question), asker.ask("a", question))] == [1, 1]
        now_s[0] += ANSWER_KEPT_S / 2
        assert await asker.ask("a", question) == 1, "it came half a second ago"
        now_s[0] += ANSWER_KEPT_S
        assert await asker.ask("a", question) == 2
        assert await asker.ask("b", question) == 3
        asker.forget("b", "c")
        assert await asker.ask("b", question) == 4, "what it told has changed"

    asyncio.run(ask())
    asker.close()


def give(value: int, _: Any) -> int:
    return value


def test_answers_that_are_there_keep_nobody_waiting_and_are_bounded():
    client: Any = None
    asker = Asker(client)
    go = threading.Event()

    async def ask():
        for at in range(3 * MOST_QUESTIONS):
            assert await asker.ask(at, partial(give, at)) == at
        assert len(asker._answers) <= MOST_QUESTIONS + 1
        half = MOST_QUESTIONS // 2
        asked = [asker.ask(f"w{at}", lambda _: happened(go, "it is let go")) for at in range(half)]
        held = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="too many questions at a time"):
            await asker.ask("one more", lambda _: None)
        OWNER.set("another")
        held.append(asyncio.ensure_future(asker.ask("another's", lambda _: None)))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*held) == [None] * (half + 1)

    asyncio.run(ask())
    asker.close()
