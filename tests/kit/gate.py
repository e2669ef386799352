"""A proxy before a server, in the test's event loop: it can hold back replies."""

import asyncio
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Gate:
    """Passes bytes on.

    While it is shut, replies wait; `asked` is set when a request has come meanwhile.
    """

    def __init__(self, url):
        self._server = urlsplit(url)
        self._open = asyncio.Event()
        self.asked = asyncio.Event()
        self._open.set()
        self.connections = 0
        self.url = ""

    def shut(self):
        """Hold back replies from now on."""
        self._open.clear()
        self.asked.clear()

    def open(self):
        """Let replies pass, also those that waited."""
        self._open.set()

    async def serve(self, reader, writer):
        """Pass the bytes of a connection in both directions until an end closes it."""
        self.connections += 1
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        try:
            await asyncio.gather(
                self._pass(reader, there[1], True), self._pass(there[0], writer, False)
            )
        except OSError:
            pass  # an end that is closed takes no more
        finally:
            for end in (writer, there[1]):
                end.close()

    async def _pass(self, reader, writer, requests):
        while data := await reader.read(1 << 16):
            if requests and not self._open.is_set():
                self.asked.set()
            elif not requests:
                await self._open.wait()  # limit: the loop of the test has one
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


@asynccontextmanager
async def gate(url):
    """Run a gate before the server at this address."""
    made = Gate(url)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        yield made
