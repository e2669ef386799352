"""The query of a request: texts have a limit, and patterns of strangers are not kept."""

import fnmatch
from typing import Any

import pytest
from starlette.requests import Request

from parsync_redis.errors import InvalidInput
from parsync_redis.serve.api import NAME_PARAM, OFFER_PARAMS
from parsync_redis.serve.demand import Machine
from parsync_redis.serve.query import Query
from tests.unit.test_deploy import KIND


def query(text):
    return Query(
        Request({"type": "http", "query_string": text.encode()}), (NAME_PARAM, *OFFER_PARAMS)
    )


def test_a_long_text_is_refused():
    assert query(f"name={'x' * 255}").text("name") == "x" * 255
    for text in (f"name={'x' * 256}", f"taint=a&taint={'x' * 256}"):
        with pytest.raises(InvalidInput, match="has 256 characters: there may be 255"):
            query(text)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("proj.*", True),
        ("*", True),
        ("proj.train", True),
        ("proj.[st]rain", True),
        ("proj", False),
        ("rain", False),
    ],
)
def test_a_pattern_is_of_the_whole_name_and_fnmatch_does_not_keep_it(pattern, fits):
    kept: Any = vars(fnmatch)["_compile_pattern"]
    kept.cache_clear()
    name = query(f"name={pattern}").pattern("name")
    assert Machine(name=name).could_hold(KIND) == fits
    assert bool(name.match("PROJ.train")) == (pattern == "*")
    assert query("").pattern("name").match("any")
    assert kept.cache_info().currsize == 0
