"""A proxy that ends TLS in front of a server, and keeps the first bytes of each connection as they
came.
"""

import select
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

HANDSHAKE = b"\x16\x03"
"""The first bytes that a TLS client sends: a record of a handshake."""


class TlsProxy:
    """Listens on a port of its own; a context manager.

    server: the port of the server behind it. certificate: its own, and the key. clients: the CA of
    the certificates that clients must show, None if they need none. beginnings: the first bytes of
    each connection.
    """

    def __init__(
        self, server: int, certificate: tuple[Path, Path], clients: Path | None = None
    ) -> None:
        self._server = server
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        if clients:
            self._context.load_verify_locations(clients)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.beginnings: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="tls proxy", daemon=True).start()

    @property
    def clear(self) -> list[bytes]:
        """Return the beginnings of connections that were not TLS."""
        return [begin for begin in self.beginnings if not begin.startswith(HANDSHAKE)]

    def close(self) -> None:
        """Close everything."""
        self._closed = True
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "TlsProxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while not self._closed:
                raw, _ = self._listener.accept()  # limit: in a daemon thread, until `close`
                threading.Thread(
                    target=self._serve, args=(raw,), name="tls proxy", daemon=True
                ).start()

    def _serve(self, raw: socket.socket) -> None:
        self._ends.add(raw)
        with raw, suppress(OSError):
            begin = raw.recv(1000, socket.MSG_PEEK)  # limit: in a daemon thread, until `close`
            if not begin:
                return
            self.beginnings.append(begin)
            if not begin.startswith(HANDSHAKE):
                return
            with self._context.wrap_socket(raw, server_side=True) as client:
                self._ends.add(client)
                with socket.create_connection(("127.0.0.1", self._server)) as server:
                    self._ends.add(server)
                    _pump(client, server)


def _pump(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Carry bytes both ways until one end closes.

    One thread does both: an SSLSocket is used by one at a time.
    """
    while True:
        readable = [client] if client.pending() else select.select([client, server], [], [])[0]
        for source, target in ((client, server), (server, client)):
            if source in readable:
                words = source.recv(1 << 16)  # limit: in a daemon thread, until `close`
                if not words:
                    return
                target.sendall(words)
