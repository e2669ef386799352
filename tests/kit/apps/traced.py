"""A Celery app whose submits and runs OpenTelemetry's instrumentation of Celery traces.

Each process keeps its spans in memory. With TRACED_SPANS all write them into that file as well, a
line for each.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

from celery import Celery
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parsync_redis import Parsync


def line_of(span: ReadableSpan) -> str:
    """Return a span, and the process that has made it, as a line."""
    return json.dumps({"pid": os.getpid(), **json.loads(span.to_json())}) + "\n"


exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
if FILE := os.environ.get("TRACED_SPANS"):
    out = Path(FILE).open("a", encoding="utf-8")  # noqa: SIM115  all processes of a pool append to it
    provider.add_span_processor(
        SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=lambda span: line_of(span)))
    )
trace.set_tracer_provider(provider)
CeleryInstrumentor().instrument(tracer_provider=provider)

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
app = Celery("traced", broker=BROKER, backend=BROKER)
app.conf.task_always_eager = False
Parsync(app)


@app.task(name="traced.work", parsync=True)
def work() -> str:
    """Log a line, and do nothing else."""
    logging.getLogger("mine").warning("this task works")
    return "worked"


@app.task(name="traced.spans", parsync=True)
def spans() -> list[Any]:
    """Return the spans that this worker has made."""
    return [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
