"""No text makes a script slow: each argument of each script, and each stored value that it may
read, of 64 kB.

The arguments come from the headers and the values from the keys of the sample calls, so a new
script is tried without a new line here. A script that takes long is run again with a quarter of the
text: its time must not grow with the square of the length. Times are the server's own CPU times,
and `pytest -rP` prints the longest calls. A busy machine is no fault: a call that seems too long is
measured again, by turns with a piece of Lua whose time is known.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pytest
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from parsync_redis.errors import InvalidInput
from parsync_redis.store import Call, Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.lengths import MAX_ROWS
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver
from tests.kit.sample import rare_calls, sample_calls
from tests.store.lua.test_refusals import busy_cluster

BYTES = 2**16
"""Bytes of a hostile text, a sixteenth of the allowed length: quadratic time takes seconds here too."""
WHOLE = 2**20
"""Bytes of the longest allowed text.

A call that is slow with BYTES is judged with WHOLE too, because many scripts refuse a text of this
length unread.
"""
MOST_US = 3_200
"""Most CPU time of a call in microseconds, on a machine that runs KNOWN in KNOWN_US; 50 ms for each MB."""
NOTICED_US = 1_000
"""CPU time in microseconds below which a call is not compared with a call of a quarter of the text."""
TURNS = 20
"""Number of measurements that show that a call is too slow.

The least time of each call counts. One measurement can show that a call is fast enough.
"""

KNOWN = (
    "local n = 0 for word in string.gmatch(string.rep('a=1 ', 100000), '[^ ]+') do n = n + #word "
    "end return n"
)
KNOWN_US = 5_600

RESTORE = """
local old = redis.call('KEYS', '*')
if #old > 0 then
  redis.call('DEL', unpack(old))
end
redis.call('SELECT', 1)
for _, key in ipairs(KEYS) do redis.call('COPY', key, key, 'DB', 0) end
"""
"""A script that restores all keys with one command, because there are tens of thousands of calls.

FLUSHDB would give the memory back to the system each time.
"""

KEPT = ("a", "1", " ", "a=1 ", "a:b ", ",1", " since=1", "work slots=1 ")
"""Pieces of which the hostile stored values are made.

test_patterns.py tries texts that only a single pattern reads slowly.
"""

UNITS = (
    "a",
    "1",
    " ",
    "=",
    "\n",
    "a=1 ",
    "a:b ",
    ",1",
    " since=1",
    " started=1",
    " inc=1",
    " score=1",
    "\0",
    "work slots=1 ",
)


class Bench:
    """A cluster in which each sample call changes something, kept in database 1 and brought back
    before each call.
    """

    def __init__(self, url: str) -> None:
        self.drive = Driver(Store.from_url(url, "c"))
        self.client: Any = self.drive.store.client
        self.drive.store.load_scripts()
        busy_cluster(self.drive)
        self.names: list[bytes] = [*self.client.scan_iter(count=1000)]
        for name in self.names:
            self.client.execute_command("COPY", name, name, "DB", 1)
        self._restore = self.client.script_load(RESTORE)
        self.calls = sample_calls(self.drive.commands)
        self.rare = rare_calls(self.drive.commands)
        self.longest: dict[str, tuple[int, str]] = {}
        self.answer: Any = None  # of the call that was measured last

    def all_of(self, verb: str) -> list[Call[Any]]:
        made = [self.calls[verb], *self.rare.get(verb, [])]
        return [part for call in made for part in call.parts or (call,)]

    def took_us(self, call: Call[Any], *before: tuple[Any, ...]) -> int:
        """Return the CPU time of a call after these commands, in a cluster that nothing has
        changed; errors are answers.
        """
        with self.client.pipeline(transaction=False) as pipe:
            pipe.execute_command("EVALSHA", self._restore, len(self.names), *self.names)
            for command in before:
                pipe.execute_command(*command)
            self._measured(pipe, "EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
            return self._cpu_us(pipe.execute(raise_on_error=False))

    def known_us(self) -> int:
        """Return the CPU time of KNOWN."""
        with self.client.pipeline(transaction=False) as pipe:
            self._measured(pipe, "EVAL", KNOWN, 0)
            return self._cpu_us(pipe.execute())

    def _measured(self, pipe: Any, *command: Any) -> None:
        """Add a command and its measure: its reading and its reply count as well."""
        pipe.info("cpu")
        pipe.execute_command(*command)
        pipe.info("cpu")

    def _cpu_us(self, answers: list[Any]) -> int:
        before, self.answer, after = answers[-3:]
        return round(
            1e6 * sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
        )

    def judge(
        self, what: str, make: Callable[[int], tuple[Call[Any], Sequence[tuple[Any, ...]]]]
    ) -> str:
        """Say what is wrong with a call, '' if nothing is; make(size) returns the call and the
        commands before it.
        """
        call, before = make(BYTES)
        try:
            took = self.took_us(call, *before)
        except RedisTimeout:
            pytest.fail(f"{what} takes longer than a client waits")
        wrong = "unknown"
        answer = self.answer
        # no busy machine makes a call so long, and more of them would take minutes
        if took > 20 * MOST_US:
            pytest.fail(f"{what} takes {took} us")
        part, before_part = make(BYTES // 4) if took > NOTICED_US else (call, before)
        whole, before_whole = make(WHOLE)
        turns: list[tuple[int, int, int, int]] = []
        while wrong and took > NOTICED_US and len(turns) < TURNS:
            times = self.took_us(call, *before), self.took_us(part, *before_part), self.known_us()
            turns.append((*times, self.took_us(whole, *before_whole) if took > MOST_US else 0))
            took, quarter, known, most = (min(column) for column in zip(*turns, strict=True))
            bar = MOST_US * max(1.0, known / KNOWN_US)
            is_short = took <= bar or (most > 0 and most <= bar * WHOLE / BYTES)
            is_right = is_short and took <= 12 * max(quarter, NOTICED_US // 2)
            seen = f"takes {took} us, a quarter {quarter} us, 1 MB {most} us"
            wrong = "" if is_right else f"{what} {seen}, where KNOWN takes {known} us"
        self.answer = answer
        self.longest[call.script.verb] = max(
            self.longest.get(call.script.verb, (0, "")), (took, what)
        )
        return wrong if took > NOTICED_US else ""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with EmbeddedServer() as server:
        found = Bench(server.url)
        yield found
        for verb, (took, what) in sorted(found.longest.items(), key=lambda item: -item[1][0])[:8]:
            print(f"longest call of {verb}: {took} us, {what}")


def names_of(call: Call[Any]) -> list[str]:
    """Return the name of each argument of a call, by the script's header."""
    header = call.script.header
    rows = (len(call.args) - len(header.once)) // max(1, len(header.each))
    return [*header.once, *header.each * rows]


@lru_cache(64)
def long(unit: str, size: int, head: str = "") -> bytes:
    return (head + unit * (size // len(unit)))[:size].encode()


@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_no_argument_makes_a_script_slow(bench: Bench, verb: str):
    wrong = []
    for call in bench.all_of(verb):
        for at, name in enumerate(names_of(call)):
            original = _text(call.args[at])
            limit = call.script.header.longest[name]
            for size in {BYTES, min(BYTES, limit)}:
                for unit in UNITS if size <= limit else UNITS[:1]:
                    for head in {"", original, original + " "}:

                        def make(bytes: int, at=at, unit=unit, head=head, size=size, call=call):
                            args = [*call.args]
                            args[at] = long(unit, size * bytes // BYTES, head)
                            return call._replace(args=args), ()

                        wrong += [
                            bench.judge(f"{verb} {name}={head}{unit!r}... of {size} bytes", make)
                        ]
                        refused = "PSARGS" if name == "count" else f"{name} has {size} bytes"
                        if size > limit and refused not in str(bench.answer):
                            wrong.append(
                                f"{verb} {name} of {size} bytes is not refused for its length, "
                                "whatever it is"
                            )
    assert not [*filter(None, wrong)]


@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_no_stored_value_makes_a_script_slow(bench: Bench, verb: str):
    wrong = []
    for call in bench.all_of(verb):
        bench.took_us(call._replace(args=["no", "such", "call"]))
        kinds = {name: bench.client.type(name).decode() for name in bench.names}
        for key in (*call.keys, *call.unsent):
            for name in [
                name
                for name in bench.names
                if name.decode() == key or (key[-1] == ":" and key in name.decode())
            ]:
                for unit in KEPT:
                    for what, spoil in spoiled(bench.client, name, kinds[name], unit):

                        def make(bytes: int, spoil=spoil, call=call):
                            return call, spoil(bytes)

                        wrong += [
                            bench.judge(f"{verb} with {name.decode()} {what} {unit!r}...", make)
                        ]
    assert not [*filter(None, wrong)]


def spoiled(client: Any, name: bytes, kind: str, unit: str) -> Iterator[tuple[str, Any]]:
    """Return ways to make values of a key long: for each its description, and a function size -> commands."""
    if kind == "hash":
        for field, value in client.hgetall(name).items():
            for head in ("", value.decode("latin-1") + " "):
                yield (
                    f"{field.decode('latin-1')}={head}",
                    lambda size, f=field, h=head: [("HSET", name, f, long(unit, size, h))],
                )
        yield "a field", lambda size: [("HSET", name, long(unit, size), "1")]
    elif kind == "zset":
        yield "a member", lambda size: [("ZADD", name, 0, long(unit, size))]
    elif kind == "list":
        yield "an entry", lambda size: [("LPUSH", name, long(unit, size))]
    elif kind == "string":
        yield "the value", lambda size: [("SET", name, long(unit, size))]
    elif kind == "set":
        yield "a member", lambda size: [("SADD", name, long(unit, size))]


def test_a_text_that_is_too_long_is_refused_by_the_script_and_before_it_is_sent(bench: Bench):
    for script in ALL_SCRIPTS:
        for call in bench.all_of(script.verb)[:1]:
            for at, name in enumerate(names_of(call)):
                args = [*call.args]
                args[at] = "1" * (script.header.longest[name] + 1)
                bench.took_us(call)
                with pytest.raises(RedisError, match=f"PSARGS {script.verb}"):
                    bench.client.evalsha(script.sha, len(call.keys), *call.keys, *args)
                if name != "count":  # Python counts the rows itself
                    once = dict(zip(script.header.once, args, strict=False))
                    once.pop("count", None)
                    with pytest.raises(
                        InvalidInput,
                        match=f"{name} of {script.verb} is too long: .* bytes are allowed",
                    ):
                        script.header.arguments(
                            once, script.header.each, args[len(script.header.once) :]
                        )


def test_too_many_rows_are_refused(bench: Bench):
    for script in ALL_SCRIPTS:
        if script.header.each:
            call = bench.all_of(script.verb)[0]
            row = [*call.args[len(script.header.once) :][: len(script.header.each)]] or ["1"] * len(
                script.header.each
            )
            args = [*call.args[: len(script.header.once)], *row * (MAX_ROWS + 1)]
            if "count" in script.header.once:
                args[script.header.once.index("count")] = MAX_ROWS + 1
            bench.took_us(call)
            with pytest.raises(
                RedisError, match=f"PSARGS {script.verb} takes {MAX_ROWS} rows at most"
            ):
                bench.client.evalsha(script.sha, len(call.keys), *call.keys, *args)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
