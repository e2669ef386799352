"""A Celery app whose submits and runs OpenTelemetry's instrumentation of Celery traces, with spans kept in memory."""

import json
import logging
import os
from typing import Any

from celery import Celery
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parsync_redis import Parsync

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
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
