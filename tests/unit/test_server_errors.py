"""Errors of a server: how long a process waits after each, what it logs, and what numbers that decreased mean."""

import logging

import pytest
from redis.exceptions import ReadOnlyError, ResponseError

from parsync_redis.errors import ServerFull, ServerReadOnly, ServerUnreachable
from parsync_redis.inspect import checkup
from parsync_redis.scheduler.process.lease_watch import HighWaterMarks
from parsync_redis.store.repair.losses import read_lines
from parsync_redis.store.server.server_errors import Backoff, refusal

log = logging.getLogger("test")


def test_pauses_grow_up_to_the_longest_and_are_not_all_alike():
    patience = Backoff(log, "me", longest_s=1.0)
    pauses = [patience.pause_s(ServerUnreachable("away")) for _ in range(60)]
    assert pauses[0] < 0.1
    assert all(0.5 <= pause <= 1.0 for pause in pauses[10:])
    assert len(set(pauses)) == 60
    patience.well()
    assert patience.pause_s(ServerUnreachable("away")) < 0.1, "it was well meanwhile"


def test_an_error_and_its_end_are_each_logged_once(caplog):
    caplog.set_level(logging.INFO)
    patience = Backoff(log, "me")
    patience.well()
    for error in (
        ServerUnreachable("away"),
        ServerUnreachable("still away"),
        ServerFull("full"),
        ServerFull("full"),
    ):
        patience.pause_s(error)
    patience.well()
    patience.well()
    assert [record.getMessage() for record in caplog.records] == [
        "me: away; it asks again until that is over",
        "me: full; it asks again until that is over",
        "me: it goes on",
    ]


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (
            ReadOnlyError("You can't write against a read only replica."),
            ServerReadOnly,
            "replica of h:1,",
        ),
        (
            ResponseError("MISCONF Errors writing to the AOF file: No space"),
            ServerReadOnly,
            "its disk fails",
        ),
        (
            ResponseError("NOREPLICAS Not enough good replicas to write."),
            ServerReadOnly,
            "fewer replicas",
        ),
        (ResponseError("BUSY Redis is busy running a script."), ServerUnreachable, "SCRIPT KILL"),
        (
            ResponseError("CLUSTERDOWN The cluster is down"),
            ServerUnreachable,
            "its cluster is down",
        ),
    ],
)
def test_each_reply_that_means_not_now_is_an_error_of_its_own(reply, error, says):
    found = refusal("here:1", reply, "h:1")
    assert type(found) is error
    assert says in str(found)
    assert "the server at here:1" in str(found)


def test_any_other_reply_is_not_the_servers_trouble():
    assert refusal("here:1", ResponseError("ERR unknown command")) is None


def test_a_number_that_went_back_is_reported_once_and_a_new_number_is_not():
    marks = HighWaterMarks()
    assert marks.see({"submitted": 150, "p0": 7}) == []
    assert marks.see({"submitted": 151}) == []
    assert marks.see({"submitted": 120, "p0": 7, "p1": 0}) == ["submitted=151->120"]
    assert marks.see({"submitted": 120, "p0": 6}) == ["p0=7->6"]
    assert marks.see({"submitted": 121, "p0": 6}) == []


def test_losses_are_reported_by_the_newest_and_malformed_losses_are_ignored():
    lines = {
        "s1 submitted=9->3 p0=7->1": "1795263279123",
        "s2 submitted=4->0": "1795263280000",
        "": "1",
        "x y": "z",
    }
    losses = read_lines(lines)
    assert [loss.seen_by for loss in losses] == ["s2", "s1"]
    check = checkup.judge_losses(losses)
    assert check.level == "warn"
    assert "it had lost its last writes: submitted 4 -> 0 (seen by s2); and 1 more" in check.text
    assert checkup.judge_losses([]).level == "ok"
    (loss,) = read_lines({"s1 failover@4711=q3,p1 p0=7->1": "1795263279123"})
    assert (loss.went_back, loss.taken_over) == (("p0 7 -> 1",), ("q3,p1",))
    assert (
        "p0 7 -> 1; a replica took over q3,p1: its last writes may be lost (seen by s1)"
        in loss.text
    )
