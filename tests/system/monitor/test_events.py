"""`parsync events`, `/api/v1/events` and the stream `/events`, of one cluster on a real server."""

import json
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from parsync_redis import ParsyncClient
from parsync_redis.cli import app
from parsync_redis.cli.stack import Process
from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import encode_id
from parsync_redis.model.task import TaskState
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import reaper
from tests.kit.servers import PRIMARIES
from tests.kit.serving import ASK_S, serving
from tests.kit.waiting import until
from tests.system.serve.test_serve import PROGRAM, set_up

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
HOSTILE = "\x1b[2J\u202e<b>\nx"


@pytest.fixture(scope="module")
def cluster():
    """Yield a driver of a cluster in which something happened, and the address of its server."""
    with EmbeddedServer(PROGRAM) as server:
        store = Store.from_url(server.url, "demo")
        driver = set_up(store)
        driver.node()
        well = driver.held("well", driver.taken("well"))
        driver.start(well)
        driver.finish(well)
        driver.bring(TaskState.DEAD, "dead")
        driver.run(driver.commands.set_node(0, "n1", "drain", None, "no deadline: a new disk"))
        driver.finish(driver.bring(TaskState.RUNNING, encode_id("b/1")), "failed", HOSTILE)
        yield driver, server.url
        store.client.close()


@pytest.fixture(scope="module")
def serve(cluster):
    with serving(cluster[1], "demo") as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        yield serve


def call(cluster, *words):
    """Return the exit code, the output and the errors of `parsync events`."""
    result = CliRunner().invoke(
        app, ["events", *words], env={"PARSYNC_URL": cluster[1], "PARSYNC_CLUSTER": "demo"}
    )
    return result.exit_code, result.stdout, result.stderr


def lines(cluster, *words):
    code, out, errors = call(cluster, *words)
    assert (code, errors) == (0, "")
    return [re.sub(r"^\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", "", line) for line in out.splitlines()]


def test_the_events_command_prints_one_line_for_each_event(cluster):
    assert sorted(lines(cluster)) == [
        "node n1 is drained: no deadline: a new disk",
        "node n1 registered: incarnation 1",
        r"task b/1 (work) on n1 failed: \x1b[2J\u202e<b>\nx",
        "task dead (work) on n1 died: its node was lost",
    ]


def test_the_command_filters(cluster):
    assert lines(
        cluster, "--node", "n1", "--event", "drained", "--event", "registered", "--since", "1h"
    ) == [*("node n1 registered: incarnation 1", "node n1 is drained: no deadline: a new disk")]
    assert lines(cluster, "--until", "1h") == lines(cluster, "--node", "n9") == ["no events"]
    code, out, errors = call(cluster, "--limit", "1")
    assert (code, out.count("\n"), errors) == (0, 1, "these are the newest 1: --limit shows more\n")
    (found,) = json.loads(call(cluster, "--task", "b/1", "--event", "failed", "--json")[1])
    assert (found["task"], found["why"], found["node"]) == ("b/1", HOSTILE, "n1")


def test_the_time_line_of_a_task_has_its_steps_too(cluster):
    said = [line.removeprefix("task well (work) ") for line in lines(cluster, "--task", "well")]
    assert said == ["was submitted", "on n1 was placed", "on n1 started", "on n1 succeeded"]
    failed = [line for line in lines(cluster, "--task", "b/1") if "failed" in line]
    assert len(failed) == 1, "the record and the stream tell the same"
    assert lines(cluster, "--task", "nobody") == ["no events"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--since", "noon"],
            "--since 'noon' is not valid: it must be a time of day (14:02), how long ago",
        ),
        (
            ["--since", "1m", "--until", "2m"],
            "the end of the time that is asked for is before its beginning",
        ),
        (["--event", "died"], "no event 'died': known are failed, cancelled"),
        (["--node", "a b"], "node name 'a b' is not valid"),
        (["--follow", "--until", "1m"], "--follow has no end: leave out --until"),
    ],
)
def test_bad_input_is_one_clear_error(cluster, words, error):
    code, out, errors = call(cluster, *words)
    assert (code, out) == (2, "")
    assert errors.startswith(f"error: {error}")
    assert errors.count("\n") == 1


def test_the_client_gives_them_and_follows(cluster):
    driver, url = cluster
    with ParsyncClient.from_url(url, "demo") as client:
        with pytest.raises(InvalidInput, match="no event 'x'"):
            client.events(events=["x"])
        assert [
            event.event for event in client.events(limit=2, node="n1", events=["registered"])
        ] == ["registered"]
        place = driver.bring(TaskState.RUNNING, "followed")
        events = client.events(follow=True, limit=1, task="followed")
        assert next(events).event == "started"
        driver.finish(place, "failed", "x")
        assert next(events).event == "failed"


def test_the_command_follows_until_it_is_stopped(cluster):
    driver, url = cluster
    words = [
        "events",
        "--follow",
        "--event",
        "undrained",
        "--json",
        "--url",
        url,
        "--cluster",
        "demo",
    ]
    process = Process(
        "events", [sys.executable, "-m", "parsync_redis.cli", *words], reaper.marked(), None, print
    )

    def undrain():
        driver.run(driver.commands.set_node(0, "n1", "drain"))
        driver.run(driver.commands.set_node(0, "n1", "undrain"))
        return list(process.lines)

    try:
        line = until(undrain, "it prints an event", 60)[0]
        assert json.loads(line)["event"] == "undrained"
    finally:
        process.send(signal.SIGINT)
        assert process.end(time.monotonic() + 20) == 130


# -- over HTTP -------------------------------------------------------------------------------------


@contextmanager
def stream(serve, query="", **headers):
    """Open the stream; yield a function that reads the next message: (id, event)."""
    request = urllib.request.Request(f"{serve.url}/events{query}", headers=headers)
    with urllib.request.urlopen(request, timeout=ASK_S) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.readline() == b"retry: 2000\n"

        def message():
            found: dict[str, str] = {}
            while True:
                assert found.get("") != "nothing happened", "a keep-alive came, and no event"
                name, _, value = answer.readline().decode().rstrip("\n").partition(": ")
                if not name and not value and found:
                    return found["id"], json.loads(found["data"])
                if name in ("", "id", "data") and value:
                    found[name] = value

        yield message, answer


def test_the_http_list_equals_the_events_command(cluster, serve):
    status, found = serve.json(
        "/api/v1/events", node="n1", event=["drained", "dead"], since="1h", limit=1
    )
    assert (status, found["limit"], found["now_ms"] > 0) == (200, 1, True)
    printed = json.loads(
        call(
            cluster,
            "--node",
            "n1",
            "--event",
            "drained",
            "--event",
            "dead",
            "--limit",
            "1",
            "--json",
        )[1]
    )
    assert [
        {name: value for name, value in one.items() if name != "text"} for one in found["items"]
    ] == printed
    for query in ({"event": "x"}, {"since": "noon"}, {"kind": "x"}, {"limit": 0}):
        assert serve.json("/api/v1/events", **query)[0] == 400
        assert query.keys() & {"since", "limit"} or serve.json("/events", **query)[0] == 400


def test_a_viewer_gets_new_events_and_goes_on_behind_the_last_seen_event(cluster, serve):
    driver, _ = cluster
    with stream(serve, "?event=cancelled") as (message, _):
        driver.submit("c1")
        driver.cancel("c1")
        first, event = message()
        assert (event["task"], event["text"]) == ("c1", "task c1 (work) was cancelled: cancelled")
        for id in ("c2", "c3"):
            driver.submit(id)
            driver.cancel(id)
        assert [message()[1]["task"] for _ in range(2)] == ["c2", "c3"]
    for query, headers in (
        ("?event=cancelled", {"Last-Event-ID": first}),
        (f"?event=cancelled&after={first}", {}),
    ):
        with stream(serve, query, **headers) as (message, _):
            assert [message()[1]["task"] for _ in range(2)] == ["c2", "c3"]
    with stream(serve, f"?after=q7/{event['at_ms']}-9&event=cancelled") as (message, _):
        assert [message()[1]["task"] for _ in range(3)] == ["c1", "c2", "c3"], (
            "an id that is not kept: by its time"
        )


def test_viewers_are_bounded_and_their_streams_end_when_the_process_stops(serve):
    """The last test: it stops the process."""
    opened = [urllib.request.urlopen(f"{serve.url}/events", timeout=ASK_S) for _ in range(100)]
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(f"{serve.url}/events", timeout=ASK_S)
    assert (told.value.code, told.value.headers["retry-after"]) == (503, "10")
    opened.pop().close()
    until(lambda: serve.json("/healthz")[0] == 200, "it is well")
    serve.process.send(signal.SIGTERM)
    assert all(b"retry" in answer.read() for answer in opened), "they end, and are not cut"
    assert serve.process.end(time.monotonic() + 20) == 0
    assert not [line for line in serve.process.lines if "ERROR" in line]
