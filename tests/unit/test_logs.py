"""JSON logs: one object a line, with what the message names as fields."""

import json
import logging

import pytest

from parsync_redis.cli.dev import JsonPrinter
from parsync_redis.errors import InvalidInput
from parsync_redis.logs import JsonFormatter, check_level


def logged(message, *args, error=None, **about):
    """Return the fields of a line."""
    found = (type(error), error, None) if error else None
    record = logging.LogRecord("parsync.agent", logging.WARNING, "file", 1, message, args, found)
    line = JsonFormatter(lambda: about).format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_line_has_its_time_level_logger_and_message():
    record = logged("outcomes wait for the server", node="n1")
    assert record.pop("time").endswith("+00:00")
    assert isinstance(record.pop("pid"), int)
    assert record == {
        "level": "warning",
        "logger": "parsync.agent",
        "message": "outcomes wait for the server",
        "node": "n1",
    }


@pytest.mark.parametrize(
    ("message", "args", "fields"),
    [
        (
            "task %s attempt %s may not start (%s)",
            ("a", "1@17.s1.5", "gone"),
            {"task": "a", "attempt": "1@17.s1.5"},
        ),
        (
            "100 %% of node %s: %d of scheduler %s",
            ("n2", 3, "s1"),
            {"node": "n2", "scheduler": "s1"},
        ),
        ("tasks %s", ("a",), {}),
        ("%s (%.3f s): node %s", ("x", 0.5, "n3"), {"node": "n3"}),
        (
            "Task %(name)s[%(id)s] received",
            ({"name": "proj.a", "id": "7"},),
            {"task": "7", "name": "proj.a"},
        ),
        ("no arguments for task %s", (), {}),
    ],
)
def test_a_name_in_a_log_message_is_a_json_field(message, args, fields):
    record = logged(message, *args)
    assert {
        name: record[name]
        for name in record.keys() & {"task", "attempt", "node", "scheduler", "name"}
    } == fields


def test_an_exception_is_a_field_and_a_line_break_is_an_escape():
    record = logged("two\nlines", error=ValueError("three\nlines"))
    assert (record["message"], record["exception"]) == ("two\nlines", "ValueError: three\nlines")


def test_an_unknown_level_is_refused():
    with pytest.raises(
        InvalidInput, match="--log-level 'loud' is not known: known are debug, info, warning, error"
    ):
        check_level("loud")


def test_lines_of_several_processes_are_objects_with_their_source(capsys):
    say = JsonPrinter()
    for line in ('{"level": "info", "message": "it runs"}', "plain", "[1]", "\u001b[31mred"):
        say("n1", line)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"source": "n1", "level": "info", "message": "it runs"},
        {"source": "n1", "message": "plain"},
        {"source": "n1", "message": "[1]"},
        {"source": "n1", "message": "\u001b[31mred"},
    ]
