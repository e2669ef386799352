"""Sources of notices: what their texts say, and how each cloud's metadata service is asked.

A small server on the loopback answers as the documents of each cloud say.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.settings import Settings
from parsync_redis.store.store import Store
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node import agent as agent_module
from parsync_redis.worker.node import sources
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.capacity import NodeCapacity
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.notices import METADATA_VARIABLE, notice_source, read_leaving
from tests.kit.waiting import joined
from tests.unit.test_node_devices import spec

Answer = tuple[int, str]
LEAVES = datetime(2026, 11, 28, 14, 30, tzinfo=UTC)


class Metadata:
    """A metadata service.

    answers: by method and path, what it answers: by the headers of the request.
    asked: the requests.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[dict[str, str]], Answer]] = {}
        self.asked: list[str] = []


@contextmanager
def serving(metadata: Metadata) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            request = f"{self.command} {self.path}"
            metadata.asked.append(request)
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = metadata.answers.get(request, lambda _: (404, "not found"))
            status, text = answer(headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            self.answer()

        def do_PUT(self) -> None:
            self.answer()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        joined(thread)
        server.server_close()


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    monkeypatch.setattr(sources, "URL_TIMEOUT_S", 60.0)  # for a busy machine
    service = Metadata()
    with serving(service) as url:
        monkeypatch.setenv(METADATA_VARIABLE, url)
        yield service


def only_with(header: str, value: str, text: str) -> Callable[[dict[str, str]], Answer]:
    """Return an answer to requests with a header; all others are refused."""
    return lambda headers: (200, text) if headers.get(header) == value else (403, "no such header")


TOKEN = "PUT /latest/api/token"
ACTION = "GET /latest/meta-data/spot/instance-action"


def test_aws_says_when_a_spot_instance_is_interrupted(metadata: Metadata) -> None:
    metadata.answers[TOKEN] = only_with("x-aws-ec2-metadata-token-ttl-seconds", "60", "AQAE==")
    ask = notice_source("--parsync-notice", "aws")
    assert ask() == "", "404: no interruption is due"
    action = json.dumps({"action": "terminate", "time": "2026-11-28T14:30:00Z"})
    metadata.answers[ACTION] = only_with("x-aws-ec2-metadata-token", "AQAE==", action)
    leaving = read_leaving(ask(), 0.0)
    assert leaving is not None
    assert leaving.at_ms == LEAVES.timestamp() * 1000
    assert metadata.asked == [TOKEN, ACTION] * 2


def test_google_cloud_gives_a_preempted_machine_what_is_left_of_30_seconds(
    metadata: Metadata,
) -> None:
    preempted = "GET /computeMetadata/v1/instance/preempted"
    ask = notice_source("--parsync-notice", "gcp")
    metadata.answers[preempted] = only_with("metadata-flavor", "Google", "FALSE")
    assert ask() == ""
    metadata.answers[preempted] = only_with("metadata-flavor", "Google", "TRUE")
    assert ask() == "25", "it may have been preempted five seconds ago"


EVENTS = "GET /metadata/scheduledevents?api-version=2020-07-01"
NAME = "GET /metadata/instance/compute/name?api-version=2021-02-01&format=text"


def event(kind: str, machine: str, not_before: str, status: str = "Scheduled") -> dict[str, object]:
    return {
        "EventId": "f020ba2e",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [machine],
        "EventStatus": status,
        "NotBefore": not_before,
    }


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], ""),
        ([event("Freeze", "vm7", format_datetime(LEAVES, usegmt=True))], ""),
        ([event("Preempt", "vm8", format_datetime(LEAVES, usegmt=True))], ""),
        ([event("Preempt", "vm7", format_datetime(LEAVES, usegmt=True))], LEAVES.isoformat()),
        ([event("Terminate", "vm7", "", "Started")], "0"),
    ],
    ids=["none", "only held up", "another machine", "preempted", "has begun"],
)
def test_azure_says_when_an_event_ends_this_machine(
    metadata: Metadata, events: list[dict[str, object]], text: str
) -> None:
    document = json.dumps({"DocumentIncarnation": 1, "Events": events})
    metadata.answers[EVENTS] = only_with("metadata", "true", document)
    metadata.answers[NAME] = only_with("metadata", "true", "vm7")
    assert notice_source("--parsync-notice", "azure")() == text


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_metadata_service_that_refuses_is_a_failure(metadata: Metadata, cloud: str) -> None:
    for request in (TOKEN, ACTION, EVENTS):
        metadata.answers[request] = lambda _: (503, "busy")
    with pytest.raises(OSError, match=r"HTTP Error (503|404)"):
        notice_source("--parsync-notice", cloud)()


def test_a_file_comes_with_the_notice(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    ask = notice_source("--parsync-notice", str(file))
    assert ask() == ""
    file.write_text("90\n")
    assert ask() == "90\n"


@pytest.mark.parametrize("text", ["cgroup", "ftp://host/x", ""])
def test_a_text_that_names_no_source_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--parsync-notice .*is not valid"):
        notice_source("--parsync-notice", text)


def test_a_text_says_a_time_or_the_seconds_from_when_it_was_read() -> None:
    assert read_leaving(" \n", 5.0) is None
    seconds = read_leaving("90\n", 5.0)
    assert seconds is not None
    assert (seconds.at_ms, seconds.due_s) == (None, 95.0)
    for text in ("2026-11-28T14:30:00Z", "2026-11-28 15:30+01:00", "2026-11-28T14:30"):
        moment = read_leaving(text, 5.0)
        assert moment is not None
        assert moment.at_ms == LEAVES.timestamp() * 1000
    for text in ("soon", "-5", "1e3", "slots=6"):
        with pytest.raises(ValueError, match="is no notice: it must be empty"):
            read_leaving(text, 5.0)
    for text in ("1795806395734", "20261128143000", "9" * 400):
        with pytest.raises(ValueError, match="is no notice: a year from now is the longest time"):
            read_leaving(text, 5.0)


@pytest.mark.parametrize("url", ["file:///etc", "http://me:secret@host"])
def test_the_address_of_a_metadata_service_is_checked(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(METADATA_VARIABLE, url)
    with pytest.raises(InvalidInput, match=f"{METADATA_VARIABLE} .* is not valid: the address"):
        notice_source("--parsync-notice", "gcp")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> AgentState:
    state = AgentState(spec({}), Isolation())
    state.inc = 3
    monkeypatch.setattr(time, "monotonic", lambda: state.inc * 100.0)
    return state


def test_a_node_owes_the_server_each_change_of_its_notice_once(node: AgentState) -> None:
    node.take_notice("")
    assert not node.owes_notice, "the node stays"
    node.take_notice("30")
    assert node.owes_notice
    assert node.leaves is not None
    assert node.leaves.until_ms(1_000_000) == 1_030_000
    node.told_leaves = node.inc, node.leaves
    node.take_notice("29")
    assert not node.owes_notice, "it counts down"
    node.take_notice("10")
    assert node.owes_notice, "it leaves earlier"
    node.told_leaves = node.inc, node.leaves
    node.take_notice("")
    assert node.owes_notice, "it stays after all"


@pytest.mark.parametrize("text", ["30", "0"])
def test_seconds_count_from_when_they_were_first_read(
    node: AgentState, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    node.take_notice(text)
    first = node.leaves
    for later_s in (5.0, 10.0, 60.0):
        monkeypatch.setattr(time, "monotonic", lambda now_s=300.0 + later_s: now_s)
        node.take_notice(f"{text}\n")
        assert node.leaves is first
    node.take_notice("")
    node.take_notice(text)
    assert node.leaves is not None
    assert node.leaves.due_s == 360.0 + float(text), "it is another notice"


def test_a_notice_that_the_server_has_lost_is_told_again(node: AgentState) -> None:
    node.take_notice("30")
    node.told_leaves = node.inc, node.leaves
    before = node.told_leaves
    node.told_leaves = node.inc, node.leaves
    node.forget_notice(before)
    assert not node.owes_notice, "it was told anew since the record was read"
    node.forget_notice(node.told_leaves)
    assert node.owes_notice


def test_a_node_tells_its_notice_again_with_its_next_incarnation(node: AgentState) -> None:
    node.take_notice("2026-11-28T14:30:00Z")
    node.told_leaves = node.inc, node.leaves
    assert not node.owes_notice
    node.inc = 4
    assert node.owes_notice
    node.take_notice("")
    assert not node.owes_notice, "the incarnation has told nothing"


def test_a_source_is_asked_no_more_often_while_its_worker_shuts_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warm shutdown may take hours, and a cloud may refuse a machine that asks too often."""
    monkeypatch.setattr(agent_module, "INTERVAL_S", 3600.0)
    monkeypatch.setattr(agent_module, "CAPACITY_INTERVAL_S", 3600.0)
    asked = list[str]()
    asked_again = threading.Event()

    def ask() -> str:
        name = threading.current_thread().name
        if name in asked:
            asked_again.set()
        asked.append(name)
        return ""

    settings = Settings()
    no_port: Any = None
    node_spec = replace(spec({}), notice=ask, capacity=NodeCapacity(ask))
    agent = Agent(settings, Store.from_url(settings.url, settings.cluster), node_spec, no_port)
    agent.node.leave()
    for source in agent.node.sources:
        source.start()
    assert not asked_again.wait(1.0)
    agent.node.stop()
    for source in agent.node.sources:
        joined(source)
    assert sorted(asked) == ["parsync-capacity", "parsync-notice"]
