"""The public names: each can be imported, is documented, and costs no more to import
than it must.
"""

import sys

import pytest

import parsync_redis
from tests.kit.waiting import run


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in parsync_redis.__all__:
        assert getattr(parsync_redis, name).__doc__
    assert sorted(parsync_redis.__all__) == parsync_redis.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonesuch'"):
        _ = parsync_redis.Nonesuch


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("parsync_redis.scheduler", ["celery", "kombu"]),
        ("parsync_redis.cli", ["celery", "kombu", "numpy"]),
        ("parsync_redis.testing.plugin", ["celery", "kombu", "numpy", "redis", "pydantic"]),
    ],
)
def test_a_scheduler_starts_without_celery_and_a_command_that_looks_without_numpy_too(
    module: str, heavy: list[str]
) -> None:
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
