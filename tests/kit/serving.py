"""A real `parsync serve` process for the tests, and the requests to it."""

import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlencode

from parsync_redis.cli.stack import Process
from tests.kit.waiting import until

ASK_S = 30.0
"""Seconds that an answer may take on a busy machine."""


class Form(dict[str, str]):
    """The fields of a form."""


class Serving:
    """A running server. Paths are asked for as a browser does."""

    def __init__(self, process: Process) -> None:
        self.process = process
        pattern = re.compile(r'is shown at (http://[^\s"]+)')
        found = until(
            lambda: [m[1] for line in list(process.lines) if (m := pattern.search(line))],
            "it listens",
        )
        self.url = found[0]

    def get(
        self, path: str, method: str = "GET", **query: Any
    ) -> tuple[int, str, Mapping[str, str]]:
        """Return the status, the body and the headers of an answer."""
        return self.get_exactly(
            quote(path) + (f"?{urlencode(query, doseq=True)}" if query else ""), method
        )

    def get_exactly(self, path: str, method: str = "GET") -> tuple[int, str, Mapping[str, str]]:
        """Ask for a path and a query that are encoded already."""
        where = f"{self.url}{path}"
        request = urllib.request.Request(where, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_S) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, Message]:
        """Ask for a path that is encoded already, and follow no redirection.

        body: bytes, fields of a form, or JSON.
        """
        if not isinstance(body, bytes | None):
            body = urlencode(body).encode() if isinstance(body, Form) else json.dumps(body).encode()
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=ASK_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def json(self, path: str, method: str = "GET", **query: Any) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        status, body, headers = self.get(path, method, **query)
        assert headers["content-type"] == "application/json", body
        return status, json.loads(body)

    def until_json(self, path: str, fact: Any, **query: Any) -> Any:
        """Wait until the JSON of an answer is as it must be, and return it."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [self.json(path, **query)[1]]
            return bool(fact(found[0]))

        try:
            until(look, f"{path} {query} is as it must be", 60)
        except AssertionError:
            raise AssertionError(f"{path} {query} still says {found}") from None
        return found[0]


@contextmanager
def serving(url: str, cluster: str, *words: str, **more: str) -> Iterator[Serving]:
    """Run `parsync serve` for a cluster, on a free port; more: variables of its environment."""
    env = {
        **os.environ,
        "PARSYNC_URL": url,
        "PARSYNC_CLUSTER": cluster,
        "PYTHONUNBUFFERED": "1",
        **more,
    }
    command = [sys.executable, "-m", "parsync_redis.cli", "serve", "--port", "0", *words]
    out = sys.stdout  # not the one that a test of a command puts in its place for a while
    process = Process("serve", command, env, None, lambda name, line: print(name, line, file=out))
    try:
        yield Serving(process)
    finally:
        process.send(signal.SIGTERM)
        process.end(time.monotonic() + 20)


def url_of(store: Any) -> str:
    """Return the address of a store's server."""
    kwargs = store.client.connection_pool.connection_kwargs
    return f"redis://{kwargs['host']}:{kwargs['port']}/0"
