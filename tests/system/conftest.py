"""Fixtures of the system tests: a module has one stack for all its tests. After each test the state
must pass the audit.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest

from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.rig import CLUSTER, Rig
from tests.kit.servers import PRIMARIES, server_programs, start_cluster


@pytest.fixture(scope="session")
def tasks() -> Iterator[ModuleType]:
    """Yield the module of the app, on a server of its own."""
    program = next(iter(server_programs().values()))
    with (
        EmbeddedServer(program) as server,
        ExitStack() as more,
        pytest.MonkeyPatch.context() as patch,
    ):
        url = more.enter_context(start_cluster(program)).url if PRIMARIES else server.url
        for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
            patch.setenv(name, server.url)
        patch.setenv("PARSYNC_URL", url)
        patch.setenv("PARSYNC_CLUSTER", CLUSTER)
        module = importlib.import_module("tests.kit.apps.marks")
        assert module.app.parsync.client.store.address in url, (
            "its settings are read now, and no more"
        )
        patch.undo()
        patch.setattr(module, "STATE", url)
        yield module


@pytest.fixture(scope="module")
def new_rig(
    tasks: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Rig]]:
    """Make the module's rig; everything it has started is stopped after the module."""
    made: list[Rig] = []

    def make(**env: str) -> Rig:
        made.append(Rig(tasks.STATE, tasks, tmp_path_factory.mktemp("logs"), env))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail after each test if the audit finds a state that no script writes."""
    rig = request.getfixturevalue("rig") if "rig" in request.fixturenames else None
    if rig is not None:
        rig.redis.delete(rig.tasks.MARKS)
        rig.redis.delete(*(rig.redis.keys("test:gate:*") or ["test:gate:none"]))
    yield
    if rig is not None:
        rig.until_clean()
