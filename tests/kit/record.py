"""Record docs/pictures again: `make record`, or `python -m tests.kit.record [session|pages]`.

session: a terminal session with `parsync dev`, as session.cast (asciinema, version 2) and
session.svg. pages: screenshots of `parsync serve` in Chromium, which needs `chromedriver` on the
PATH. Both run real processes.
"""

import io
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from selenium import webdriver

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from tests.kit import REPO
from tests.kit.apps.project import PROJ
from tests.kit.blocks import files
from tests.kit.serving import serving
from tests.kit.waiting import ended, until

PICTURES = REPO / "docs/pictures"
WIDTH = 118
HEIGHT = 40
DEV = "parsync dev -A proj --workers 2 --slots 2 --label zone=a --resource mem=4GiB"
LINES = (
    "parsync nodes",
    "parsync submit proj.render 7 --wait",
    "parsync submit proj.render 7 --resource mem=64GiB",
    "parsync plan proj.render --slots 2 --resource mem=3GiB",
    "parsync plan proj.render --require zone=b",
)
READY = "Ctrl-C here stops everything."
"""The last line that `parsync dev` shows when all are ready."""

TYPING_S = 0.04
"""A recorded person types a character in this time."""


class Session:
    """A terminal session: what was shown, and when.

    Time passes by what is typed and by what commands take.
    """

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self._at_s = 0.5

    def show(self, text: str, after_s: float = 0.0) -> None:
        """Show a text."""
        self._at_s += after_s
        clean = re.sub(
            r"[^\s(]*/((redis|valkey)-server)",
            r"/usr/bin/\1",
            text.replace(socket.gethostname(), "host"),
        )
        self.events.append((round(self._at_s, 3), clean))

    def type(self, line: str) -> None:
        """Show a prompt and the typed line."""
        self.show("\x1b[1;32m$\x1b[0m ", 0.8)
        for character in line:
            self.show(character, TYPING_S)
        self.show("\r\n", 0.3)

    def cast(self) -> str:
        """Return the session as an asciicast, version 2."""
        head = {
            "version": 2,
            "width": WIDTH,
            "height": HEIGHT,
            "title": "parsync dev, and a first task",
        }
        return "".join(
            json.dumps(one) + "\n" for one in (head, *([at, "o", text] for at, text in self.events))
        )

    def svg(self) -> str:
        """Return the session as a picture that shows a line after the other."""
        console = Console(
            record=True,
            width=WIDTH,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
        text = "".join(text for _, text in self.events).replace("\r\n", "\n").rstrip()
        console.print(Text.from_ansi(text), soft_wrap=False)
        made = console.export_svg(title="parsync", unique_id="session")
        made = re.sub(r"@font-face \{.*?\}\n", "", made, flags=re.DOTALL).replace("Fira Code, ", "")
        alt = (
            "<title>A terminal session: parsync dev starts a cluster, a task is submitted, and one "
            "is refused</title>"
        )
        return made.replace(">", f' role="img">{alt}', 1)


@contextmanager
def in_terminal(
    line: str, env: dict[str, str], folder: Path
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run a line of the shell on a terminal; yield the process and the other end of the
    terminal.
    """
    ours, theirs = pty.openpty()
    module = {"parsync": "parsync_redis.cli"}
    program, *words = shlex.split(line)
    command = [sys.executable, "-m", module[program], *words]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.send_signal(signal.SIGINT)
        ended(process, line, 60)
        os.close(ours)


def read(terminal: int, patience_s: float) -> str:
    """Read what a terminal shows next; '' if it shows nothing in this time, or its programs have
    ended.
    """
    if not select.select([terminal], [], [], patience_s)[0]:
        return ""
    try:
        return os.read(terminal, 65536).decode(errors="replace")  # limit: it is readable
    except OSError:  # Linux says so of a terminal without programs
        return ""


def record_session() -> None:
    """Record the session of docs/start.md."""
    session = Session()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PARSYNC_", "CELERY_"))
    }
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "proj.py").write_text(min(files()["proj.py"]))
        env = {
            **environ,
            "PYTHONPATH": f"{REPO}:{folder}",
            "TERM": "xterm-256color",
            "COLUMNS": str(WIDTH),
        }
        session.type(DEV)
        with in_terminal(DEV, env, folder) as (_, terminal):
            shown = ""
            while READY not in shown:
                shown += read(terminal, 1.0)
            env |= dict(re.findall(r"\b(PARSYNC_\w+)=(\S+)", re.sub(r"\x1b\[[0-9;]*m", "", shown)))
            for line in shown.splitlines():
                if line and not line.startswith("logs:"):
                    session.show(line + "\r\n", 0.2)
            session.show(
                "\r\n\x1b[2m# in a second terminal, after pasting the exports\x1b[0m\r\n", 1.0
            )
            for line in LINES:
                session.type(line)
                began_s = time.monotonic()
                with in_terminal(line, env, folder) as (process, other):
                    said = ""
                    while process.poll() is None or select.select([other], [], [], 0)[0]:
                        if not (more := read(other, 0.2)) and process.poll() is not None:
                            break
                        said += more
                session.show(said, time.monotonic() - began_s)
    (PICTURES / "session.cast").write_text(session.cast(), encoding="utf-8")
    (PICTURES / "session.svg").write_text(session.svg(), encoding="utf-8")


# -- screenshots -----------------------------------------------------------------------------------


OFFERS: dict[str, tuple[int, float, dict[str, str], dict[str, str | int]]] = {
    "gpu-1": (8, 9.0, {"gpu_model": "a100", "zone": "a"}, {"gpu": 4, "mem": "512GiB"}),
    "gpu-2": (8, 5.0, {"gpu_model": "a10", "zone": "b"}, {"gpu": 4, "mem": "128GiB"}),
    "big-1": (16, 3.0, {"zone": "a"}, {"mem": "1TiB"}),
    "cpu-1": (8, 1.0, {"zone": "b"}, {"mem": "32GiB"}),
}
ROUNDS = 12
ROUND_S = 4.0
"""Number of times that short tasks run first, and the pause between two times."""

LOAD: tuple[tuple[int, dict[str, Any]], ...] = (
    (4, {"resources": {"gpu": 1}, "require": {"gpu_model": "a100"}}),
    (3, {"resources": {"gpu": 1}, "require": {"gpu_model": "a10"}}),
    (9, {"resources": {"mem": "64GiB"}}),
    (6, {"resources": {"mem": "4GiB"}}),
    (5, {"resources": {"gpu": 2}, "require": {"gpu_model": "a100"}}),
    (2, {"require": {"gpu_model": "h100"}, "wait_for_capacity": True}),
)
"""Number of tasks, and what they ask for. The last two kinds wait."""


def record_pages() -> None:
    """Take screenshots of a cluster with four different nodes, full of tasks that sleep, and some
    that wait.
    """
    with tempfile.TemporaryDirectory() as home, browser() as driver:
        folder = Path(home)
        (folder / "proj.py").write_text(PROJ)
        with LocalStack("studio", cwd=folder, grace_s=3, env={"PYTHONPATH": str(REPO)}) as stack:
            url = stack.server()
            stack.scheduler(2, partitions=4)
            for node, (slots, score, labels, resources) in OFFERS.items():
                stack.worker("proj", node, slots, score, labels, resources, pool="threads")
            with ParsyncClient.from_url(url, "studio") as client, serving(url, "studio") as serve:
                until(lambda: len(client.nodes()) == len(OFFERS), "the nodes")
                for at in range(ROUNDS):  # so that the charts have something to show
                    small = [
                        {"name": "proj.render", "args": [0.5], **LOAD[3][1]}
                        for _ in range(4 + at * 5 % 12)
                    ]
                    client.wait(client.submit_many(small), timeout=60)
                    time.sleep(ROUND_S)
                for count, options in LOAD:
                    client.submit_many(
                        [{"name": "proj.render", "args": [3600], **options} for _ in range(count)]
                    )
                waiting = sum(count for count, _ in LOAD[-2:])
                until(
                    lambda: sum(k.waiting for k in client.demand() if k.why) == waiting,
                    "what waits has reasons",
                )
                serve.until_json(
                    "/api/v1/kinds", lambda found: len([k for k in found["items"] if k["why"]]) == 2
                )
                for name, path in (
                    ("overview", "/"),
                    ("nodes", "/view/nodes"),
                    ("schedulers", "/view/schedulers"),
                ):
                    driver.get(f"{serve.url}{path}")
                    driver.save_screenshot(str(PICTURES / f"{name}.png"))
            for node in OFFERS:
                stack.kill(node)


@contextmanager
def browser() -> Iterator[Any]:
    """Run a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(word)
    options.add_argument("--window-size=1100,640")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def main() -> None:
    """Record what the arguments name, or all."""
    parts = {"session": record_session, "pages": record_pages}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
