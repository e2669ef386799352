"""Ways to watch a cluster, on one stack of a scheduler, a worker and `parsync serve`.

The ways are histograms, charts, health files, JSON logs, and the place span of OpenTelemetry.
"""

import importlib
import json
import re
import signal
from collections.abc import Iterator
from datetime import datetime

import pytest

from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import REPO
from tests.kit.servers import PRIMARIES
from tests.kit.serving import serving
from tests.kit.waiting import until
from tests.system.serve.test_serve import PROGRAM
from tests.system.serve.test_serve_metrics import metrics

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]


class Watched:
    """The stack, its folder, the client's app, and the service that watches it."""

    def __init__(self, stack, folder, tasks, serve):
        self.stack = stack
        self.folder = folder
        self.tasks = tasks
        self.serve = serve

    def lines(self, process):
        """Return the lines of a process."""
        return (self.folder / f"{process}.log").read_text(encoding="utf-8").splitlines()

    def messages(self, process):
        """Return the messages of a process, without the lines that are no JSON."""
        return [line["message"] for line in self.logged(process)]

    def logged(self, process):
        """Return the lines of a process that are JSON; Celery's banner is not."""
        return [json.loads(line) for line in self.lines(process) if line.startswith("{")]

    def health(self, process):
        """Return the text of a health file, '' if there is none."""
        try:
            return (self.folder / f"{process}.health").read_text(encoding="utf-8")
        except FileNotFoundError:  # the process may remove it at any moment
            return ""


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with EmbeddedServer(PROGRAM) as server, pytest.MonkeyPatch.context() as patch:
        for name in ("CELERY_BROKER_URL", "PARSYNC_URL"):
            patch.setenv(name, server.url)
        patch.setenv("PARSYNC_CLUSTER", "watched")
        tasks = importlib.import_module("tests.kit.apps.traced")
        env = {"PARSYNC_LOG_FORMAT": "json", "PARSYNC_HEALTH_FILE": str(folder / "n1.health")}
        env["TRACED_SPANS"] = str(folder / "spans")
        with (
            LocalStack("watched", server.url, logs=folder, cwd=REPO, env=env) as stack,
            serving(server.url, "watched", "--log-format", "json") as serve,
        ):
            stack.scheduler(health_file=folder / "scheduler-1.health", partitions=2, lease_s=10)
            stack.worker("tests.kit.apps.traced:app", "n1", 1, pool="solo", extra=("-l", "info"))
            serve.until_json("/readyz", lambda found: found["ready"])
            yield Watched(stack, folder, tasks, serve)
        tasks.CeleryInstrumentor().uninstrument()
        tasks.app.close()


@pytest.fixture(scope="module")
def worked(watched):
    """Return the id of a task that has run."""
    result = watched.tasks.work.delay()
    assert result.get(timeout=120) == "worked"
    return result.id


def test_histograms_count_waits_delays_and_runs(watched, worked):
    def found(name, *labels):
        return metrics(watched.serve).get((name, *labels), 0)

    until(
        lambda: found("wait_seconds_count", "traced.work") >= 1,
        "the scheduler has told how long it waited",
    )
    until(
        lambda: found("run_seconds_count", "traced.work") >= 1,
        "the node has written how long it ran",
    )
    there = metrics(watched.serve)
    for name, word in (
        ("wait_seconds", "traced.work"),
        ("run_seconds", "traced.work"),
        ("scheduling_delay_seconds", "scheduler-1"),
    ):
        bounds = [
            (key[1], value)
            for key, value in there.items()
            if (key[0], key[-1]) == (f"{name}_bucket", word)
        ]
        counts = [value for _, value in bounds]
        assert counts == sorted(counts), "buckets are cumulative"
        assert (len(bounds), bounds[0][0], bounds[-1][0]) == (24, "0.001", "+Inf")
        assert bounds[-1][1] == there[f"{name}_count", word] >= 1
        assert there[f"{name}_sum", word] >= 0
    assert there["partition_view_age_seconds", "1", "scheduler-1"] < 60


def test_the_page_of_schedulers_has_charts_and_a_map_that_needs_no_colors(watched, worked):
    def page():
        return watched.serve.get("/view/schedulers")[1]

    until(lambda: len(re.findall(r"<polyline", page())) == 3, "all charts have a line")
    assert re.search(
        r'aria-label="tasks placed over [^:]+: [\d.]+ a second now, [\d.]+ at most"', page()
    )
    assert re.search(
        r'<th>scheduler-1</th><td class="age\d">\d+</td><td class="age\d">\d+</td>', page()
    )


def test_health_files_name_the_state_of_their_processes(watched, worked):
    until(
        lambda: watched.health("scheduler-1") == "scheduler scheduler-1 is one of 1, the leader\n",
        "it is well",
    )
    until(lambda: watched.health("n1") == "node n1 is up\n", "it is well")
    watched.stack.scheduler(health_file=watched.folder / "scheduler-2.health", at_most=1)
    until(
        lambda: watched.health("scheduler-2") == "scheduler scheduler-2 stands by\n", "it is well"
    )
    watched.stack.processes["scheduler-2"].send(signal.SIGTERM)
    until(lambda: not watched.health("scheduler-2"), "it has removed its file")


def test_every_line_of_the_log_is_json_with_its_fields(watched, worked):
    # a thread of this process reads the lines, so that a result may come before them
    until(lambda: "this task works" in watched.messages("n1"), "the line of the task is read")
    for process in ("scheduler-1", "n1"):
        assert all(datetime.fromisoformat(line["time"]) for line in watched.logged(process))
    assert {line["scheduler"] for line in watched.logged("scheduler-1")} == {"scheduler-1"}
    assert len(watched.logged("scheduler-1")) == len(watched.lines("scheduler-1"))
    assert all(line.startswith("{") for line in list(watched.serve.process.lines))
    of_node = watched.logged("n1")
    assert {line["node"] for line in of_node if line["logger"].startswith("parsync")} == {"n1"}
    (own,) = [line for line in of_node if line["message"] == "this task works"]
    assert (own["task"], own["name"], own["node"]) == (worked, "traced.work", "n1")
    assert own["attempt"].startswith("1@")
    received = [
        line for line in of_node if line["message"] == f"Task traced.work[{worked}] received"
    ]
    assert [(line["task"], line["name"]) for line in received] == [(worked, "traced.work")]
    assert not [line for line in watched.lines("n1") if "INFO/" in line], "no line is text"


def test_the_place_span_is_between_submit_and_run_in_the_same_trace(watched, worked):
    (submit,) = [
        span
        for span in watched.tasks.exporter.get_finished_spans()
        if span.name == "apply_async/traced.work"
        and span.attributes["messaging.message.id"] == worked
    ]

    def made():
        every = watched.tasks.spans.delay().get(timeout=120)
        return {
            span["name"].partition("/")[0]: span
            for span in every
            if span["name"].endswith("/traced.work")
        }

    found = {}
    until(lambda: found.update(made()) or {"place", "run"} <= found.keys(), "the spans are made")
    for span in found.values():
        assert span["context"]["trace_id"] == f"0x{submit.context.trace_id:032x}"
        assert span["parent_id"] == f"0x{submit.context.span_id:016x}"
    place = found["place"]
    run = found["run"]
    assert place["start_time"] <= place["end_time"] <= run["end_time"]
    facts = place["attributes"]
    assert (facts["parsync.node"], facts["parsync.slots"], facts["parsync.scheduler"]) == (
        "n1",
        [0],
        "scheduler-1",
    )
    assert (facts["parsync.retries"], facts["parsync.lost_starts"]) == (0, 0)
    assert facts["messaging.message.id"] == worked
    assert facts["parsync.waiting_ms"] >= 0
    assert facts["parsync.view_age_ms"] >= 0
    assert [event["name"] for event in place["events"]] == ["placed"]


def test_a_prefork_worker_makes_the_place_span_in_its_main_process_and_the_run_span_in_the_pool(
    watched, worked
):
    node = watched.stack.worker("tests.kit.apps.traced:app", "n2", 1, labels={"pool": "prefork"})
    main = watched.stack.processes[node].popen.pid
    watched.serve.until_json("/api/v1/nodes", lambda found: found["total"] == 2)
    result = watched.tasks.work.apply_async(parsync={"require": {"pool": "prefork"}})
    assert result.get(timeout=120) == "worked"
    (submit,) = [
        span
        for span in watched.tasks.exporter.get_finished_spans()
        if span.name == "apply_async/traced.work"
        and span.attributes["messaging.message.id"] == result.id
    ]
    trace = f"0x{submit.context.trace_id:032x}"

    def made():
        lines = map(json.loads, (watched.folder / "spans").read_text(encoding="utf-8").splitlines())
        return {span["name"]: span for span in lines if span["context"]["trace_id"] == trace}

    until(lambda: made().keys() == {"place/traced.work", "run/traced.work"}, "the spans are made")
    place = made()["place/traced.work"]
    run = made()["run/traced.work"]
    assert place["parent_id"] == run["parent_id"] == f"0x{submit.context.span_id:016x}"
    assert (place["pid"] == main, run["pid"] == main) == (True, False)
    assert place["end_time"] <= run["end_time"]
    assert (place["attributes"]["parsync.node"], place["attributes"]["parsync.scheduler"]) == (
        "n2",
        "scheduler-1",
    )
    watched.stack.processes[node].send(signal.SIGTERM)
    until(lambda: not watched.stack.processes[node].alive, "it has stopped")
