"""deploy/autoscale.py as a process, beside a server that answers as it is told: when it runs the
command.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from parsync_redis.cli.stack import Process
from tests.kit import REPO
from tests.kit.waiting import joined, run, until

PROGRAM = [sys.executable, str(REPO / "deploy/autoscale.py")]


class Demand(ThreadingHTTPServer):
    """A server that counts questions.

    answer: the body, of which it promises `more` bytes than it sends.
    """

    daemon_threads = True

    def __init__(self, machines, nodes):
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked = 0
        self.more = 0
        self.say(machines, nodes)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"

    def say(self, machines, nodes):
        self.answer = json.dumps({"machines": machines, "nodes": nodes}).encode()

    def until_asked_again(self):
        since = self.asked
        until(lambda: self.asked >= since + 5, "it asks again", 60)


class Answer(BaseHTTPRequestHandler):
    server: Demand

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.answer) + self.server.more))
        self.end_headers()
        self.wfile.write(self.server.answer)
        self.server.asked += 1

    def log_message(self, *_):
        pass


@pytest.fixture
def demand():
    with Demand(1, 3) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        joined(thread)


@contextmanager
def scaling(demand, calm, tmp_path):
    """Run it. Yield a function that reads the numbers which its command got, and the process."""
    told = tmp_path / "told"
    told.touch()
    command = [
        sys.executable,
        "-c",
        f"import sys; open({str(told)!r}, 'a').write(sys.argv[1] + ' ')",
    ]
    words = [demand.url, "--most", "9", "--every", "0.02", "--calm", str(calm), "--", *command]
    process = Process("autoscale", [*PROGRAM, *words], os.environ, None, lambda name, line: None)
    try:
        yield lambda: told.read_text().split(), process
    finally:
        process.send(signal.SIGKILL)
        process.end(time.monotonic() + 20)


def test_after_a_start_the_autoscaler_asks_for_more_at_once_and_for_fewer_only_after_calm(
    demand, tmp_path
):
    with scaling(demand, 10**6, tmp_path) as (told, _):
        demand.until_asked_again()
        assert told() == [], "one machine is wanted and three are there"
        demand.say(5, 3)
        until(lambda: told() == ["5"], "more are asked for", 60)
        demand.say(2, 5)
        demand.until_asked_again()
        assert told() == ["5"]


def test_fewer_are_enough_after_a_while(demand, tmp_path):
    with scaling(demand, 0, tmp_path) as (told, _):
        until(lambda: told() == ["1"], "fewer are asked for", 60)


def test_an_answer_that_breaks_off_changes_nothing(demand, tmp_path):
    demand.more = 100
    with scaling(demand, 0, tmp_path) as (told, process):
        demand.until_asked_again()
        assert (told(), process.alive) == ([], True)
        demand.more = 0
        until(lambda: told() == ["1"], "it goes on", 60)


@pytest.mark.parametrize("code", [0, 7])
def test_once_exits_with_the_code_of_its_command(demand, code):
    command = [sys.executable, "-c", f"import sys; sys.exit({code} if sys.argv[1] == '1' else 99)"]
    done = run([*PROGRAM, demand.url, "--most", "9", "--once", "--", *command], 60)
    assert done.returncode == code
