"""What a scheduler hears is understood or passed over: every client may publish on its channel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.scheduler.ears import understand


@pytest.mark.parametrize("data", [b"tick 7 3", b"wake", b"freed 0 3 16", b"freed 7 -1 0"])
def test_what_schedulers_and_scripts_send_is_understood(data):
    assert understand(data, 8) == data.decode().split()


@pytest.mark.parametrize(
    "data",
    [b"", b" ", b"tick", b"tick a b", b"tick 1", b"wake 1", b"awake", b"freed 8 0 16", b"freed -1 0 16",
     b"\xff\xfe", b"tick 1 2\n", b"tick " + b"9" * 5000 + b" 1", "tick \u0661 \u0662".encode()],
)  # fmt: skip
def test_what_else_is_said_is_passed_over(data):
    assert understand(data, 8) == []


@given(st.binary(max_size=60))
def test_no_bytes_raise(data):
    understand(data, 8)
