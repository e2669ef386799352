"""A TCP proxy that does to connections what networks do: a line, with a port of its own, for each
process of a stack.

    pass         bytes go through
    cut_reply    a reply is thrown away and its connection closed: the request was executed, its sender does not know
    cut_request  half of a request goes through, then its connection is closed
    swallow_up   requests vanish; swallow_down: replies vanish; swallow: both. Nobody is told
    hold         nothing goes through until the line is healed, then all of it, late, as TCP does after a partition
    delay        each piece waits for up to `seconds`
    slices       64 bytes at a time

A connection of which bytes were swallowed is reset when the mode ends.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final

MODES: Final = (
    "cut_reply",
    "cut_request",
    "swallow_up",
    "swallow_down",
    "swallow",
    "hold",
    "delay",
    "slices",
)
_SWALLOWED: Final = {"swallow_up": (True,), "swallow_down": (False,), "swallow": (True, False)}
_PIECE = 1 << 16
_SLICE = 64


class Line:
    """A port of 127.0.0.1 that leads to the server; made by `Proxy.line`, set from any thread."""

    def __init__(self, proxy: "Proxy", seed: int) -> None:
        self._proxy = proxy
        self._dice = random.Random(seed)
        self.port = 0
        self.mode = "pass"
        self.cuts = 0
        self.seconds = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._spoiled: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    def turn(self, mode: str, cuts: int = 1, seconds: float = 0.0) -> None:
        """Set the mode; of the two that cut, `cuts` pieces are cut and then it is `pass` again."""

        def change() -> None:
            self.mode = mode
            self.cuts = cuts
            self.seconds = seconds
            (self._flows.clear if mode == "hold" else self._flows.set)()
            self._reset(self._spoiled)

        self._proxy.call(change)

    def heal(self) -> None:
        """Let everything through again."""
        self.turn("pass")

    def reset(self) -> None:
        """Reset every connection (RST), as a firewall does that has forgotten them."""
        self._proxy.call(lambda: self._reset(self._open))

    @staticmethod
    def _reset(writers: set[asyncio.StreamWriter]) -> None:
        for writer in list(writers):
            raw = writer.get_extra_info("socket")
            if raw is not None and not writer.is_closing():
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until either end closes."""
        try:
            far_reader, far_writer = await asyncio.open_connection(
                *self._proxy.target, limit=_PIECE
            )
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, True)),
            asyncio.create_task(self._pump(far_reader, writer, False)),
        ]
        try:
            await asyncio.wait(pumps)
        finally:
            self._open -= ends
            self._spoiled -= ends

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool
    ) -> None:
        try:
            while data := await reader.read(_PIECE):
                if up in _SWALLOWED.get(self.mode, ()):
                    self._spoiled.add(writer)
                    continue
                if self.cuts > 0 and self.mode == ("cut_request" if up else "cut_reply"):
                    self.cuts -= 1
                    self.mode = self.mode if self.cuts else "pass"
                    writer.write(data[: len(data) // 2] if up else b"")
                    break
                await self._forward(data, writer)
        except OSError:
            pass  # the other end is gone
        finally:
            writer.close()

    async def _forward(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        if self.mode == "delay":
            await asyncio.sleep(self._dice.uniform(0.0, self.seconds))
        size = _SLICE if self.mode == "slices" else len(data)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()


class Proxy:
    """All lines to one server, on an event loop in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def call(self, do: Callable[[], object]) -> None:
        """Have something done on the loop."""
        self._loop.call_soon_threadsafe(do)

    def line(self, seed: int = 0) -> Line:
        """Return a new line, listening."""

        async def listen() -> Line:
            line = Line(self, seed)
            server = await asyncio.start_server(line.serve, "127.0.0.1", 0, limit=_PIECE)
            line.port = server.sockets[0].getsockname()[1]
            return line

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    def close(self) -> None:
        """End every connection, and the loop."""

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(timeout=5)
