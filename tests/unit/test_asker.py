"""Questions that a survey does not answer: equal ones are asked once, and for a second after the answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

from parsync_redis.serve.asker import KEPT_S, Asker


def test_an_answer_is_kept_from_when_it_came(monkeypatch):
    now_s, asked = [100.0], []
    monkeypatch.setattr("parsync_redis.serve.asker.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    client: Any = None
    asker = Asker(client)

    def question(_):
        asked.append(now_s[0])
        now_s[0] += 5 * KEPT_S
        return len(asked)

    async def ask():
        assert [*await asyncio.gather(asker.ask("a", question), asker.ask("a", question))] == [1, 1]
        now_s[0] += KEPT_S / 2
        assert await asker.ask("a", question) == 1, "it came half a second ago"
        now_s[0] += KEPT_S
        assert await asker.ask("a", question) == 2
        assert await asker.ask("b", question) == 3
        asker.forget("b", "c")
        assert await asker.ask("b", question) == 4, "what it told has changed"

    asyncio.run(ask())
    asker.close()
