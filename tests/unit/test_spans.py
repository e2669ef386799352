"""Place spans: of sampled traces only, whatever stands in a message's headers, and with what is
known of the place.
"""

from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parsync_redis.model.explanation import Choice
from parsync_redis.model.place import Place
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.worker.node.spans import BegunRun, PlaceSpans, make_span, sampled

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PLACE = Place.of("a%20b 2@17.s1.482913 p0 n1/3,4 inc=3 since=5000")
TIMES = {"submitted": 1000, "ready": 2000, "placed": 5000, "started": 5020, "finished": None}
TASK = TaskStatus(
    "a b", TaskState.RUNNING, "proj.a", attempt=2, starts=2, node="n1", scheduler="s1", times=TIMES
)


@pytest.fixture(scope="module")
def exporter():
    """Return the exporter that keeps the spans of this process."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    found = InMemorySpanExporter()
    cast(TracerProvider, trace.get_tracer_provider()).add_span_processor(SimpleSpanProcessor(found))
    return found


def headers(flags="01"):
    return {"task": "proj.a", "traceparent": f"00-{TRACE}-{PARENT}-{flags}"}


def made(exporter, task=TASK, choice=None):
    """Return the span of a run."""
    exporter.clear()
    context = sampled(headers())
    assert context is not None
    make_span(BegunRun(PLACE, "proj.a", 1, context, 0.0, task), choice)
    (span,) = exporter.get_finished_spans()
    return span


def test_only_a_sampled_trace_has_a_context(exporter):
    assert sampled(headers()) is not None
    for none in ({}, headers("00"), {"traceparent": "odd"}):
        assert sampled(none) is None


@pytest.mark.parametrize("odd", [5, [7], {"a": 1}])
def test_headers_that_nobody_can_read_begin_no_span_and_harm_no_run(exporter, caplog, odd):
    spans = PlaceSpans(cast(Any, None))
    spans.begin(PLACE, "proj.a", {"traceparent": odd})
    assert spans.ident is None


def test_a_span_goes_from_when_the_task_could_be_taken_until_its_run_began(exporter):
    span = made(exporter)
    assert (span.name, f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (
        "place/proj.a",
        TRACE,
        PARENT,
    )
    assert (span.start_time, span.end_time) == (2000 * 10**6, 5020 * 10**6)
    assert dict(span.attributes) == {
        "celery.task_name": "proj.a",
        "messaging.message.id": "a b",
        "parsync.node": "n1",
        "parsync.slots": (3, 4),
        "parsync.attempt": "2@17.s1.482913",
        "parsync.retries": 1,
        "parsync.waiting_ms": 3000,
        "parsync.starting_ms": 20,
        "parsync.lost_starts": 1,
        "parsync.scheduler": "s1",
    }


def test_the_age_of_the_view_is_told_of_the_choice_of_this_place_only(exporter):
    choice = Choice("s1", "n1", "latency", 0.25, (), 1.0, 1.0, 1)
    assert made(exporter, TASK, choice).attributes["parsync.view_age_ms"] == 250
    other = Choice("s2", "n1", "latency", 0.25, (), 1.0, 1.0, 1)
    assert "parsync.view_age_ms" not in made(exporter, TASK, other).attributes


def test_a_task_whose_record_tells_of_another_attempt_has_a_span_of_its_place(exporter):
    span = made(exporter, task=None)
    assert span.start_time == span.end_time == 5000 * 10**6
    assert span.attributes["parsync.node"] == "n1"
    assert "parsync.lost_starts" not in span.attributes
