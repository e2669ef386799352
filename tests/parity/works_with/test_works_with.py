"""Each row of docs/works-with.md is true, on one stack: a Redis, a scheduler and a prefork worker."""

import importlib
import json
import os
import sqlite3
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import redis

from parsync_redis import Infeasible
from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer, free_port
from tests.kit import REPO
from tests.kit.waiting import run, until
from tests.parity.works_with import LIBRARIES, is_installed

pytestmark = pytest.mark.serial
APP = "tests.parity.works_with.app:app"
DJANGO = "tests.parity.works_with.django_app"
CLUSTER = "works-with"
CELERY = [sys.executable, "-m", "celery"]
PATIENCE_S = 180


def needs(*packages: str) -> pytest.MarkDecorator:
    """Return a mark that leaves a test out, and says so, if a library is not installed."""
    absent = [LIBRARIES[package] for package in packages if not is_installed(package)]
    return pytest.mark.skipif(
        bool(absent), reason=f"not installed: {', '.join(absent)} (see .ci/works-with)"
    )


class Rig:
    """The stack; its app, whose client is this process; and Redis."""

    def __init__(
        self, server: EmbeddedServer, folder: Path, stack: LocalStack, tasks: ModuleType
    ) -> None:
        self.url = server.url
        self.folder = folder
        self.stack = stack
        self.tasks = tasks
        self.client = tasks.app.parsync.client
        self.redis: Any = redis.Redis.from_url(server.url)

    def until(self, fact: Callable[[], Any], what: str) -> Any:
        """Wait for a fact; if it does not come, show what the processes have printed."""
        try:
            return until(fact, what, PATIENCE_S)
        except AssertionError as error:
            logs = [
                f"-- {path.name}\n{path.read_text()[-4000:]}" for path in self.folder.glob("*.log")
            ]
            pytest.fail("\n".join([str(error), *logs]))

    def start(self, name: str, *words: str, **env: str) -> None:
        """Start a program, with more in its environment."""
        self.stack.start(
            name, ["env", *(f"{variable}={value}" for variable, value in env.items()), *words]
        )

    def nodes(self) -> dict[str, str]:
        """Return the state of each node."""
        return {node.name: node.state for node in self.client.nodes()}

    def until_up(self, *names: str) -> None:
        """Wait until these nodes take tasks, and a submit knows what they offer."""
        store = self.client.store
        shapes = store.keys.queue("shapes")
        self.until(lambda: all(self.nodes().get(name) == "up" for name in names), f"{names} are up")
        self.until(
            lambda: all(store.client.hexists(shapes, name) for name in names),
            f"{names} are known to submit",
        )

    def state(self, id: str) -> str:
        """Return the state of a task."""
        return str(self.client.status(id).state)

    def until_placed(self, id: str) -> None:
        """Wait until parsync has placed a task, and it has succeeded."""
        self.until(lambda: self.state(id) == "succeeded", f"task {id} succeeds")

    def value(self, id: str) -> Any:
        """Return the result of a task that parsync has placed."""
        result = self.tasks.app.AsyncResult(id).get(timeout=PATIENCE_S)
        self.until_placed(id)
        return result


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("works-with")
    with EmbeddedServer() as server, pytest.MonkeyPatch.context() as patch:
        env = {
            "CELERY_BROKER_URL": server.url,
            "PARSYNC_URL": server.url,
            "PARSYNC_CLUSTER": CLUSTER,
            "WORKS_WITH_DATABASE": str(folder / "database"),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH")))),
        }
        for name, value in env.items():
            patch.setenv(name, value)
        with LocalStack(
            CLUSTER, server.url, logs=folder, cwd=REPO, env={**env, "WORKS_WITH_SENTRY": "1"}
        ) as stack:
            stack.scheduler(1, partitions=1, lease_s=30)
            stack.worker(APP, "n1", slots=4, extra=("-l", "info"))
            rig = Rig(server, folder, stack, importlib.import_module("tests.parity.works_with.app"))
            rig.until_up("n1")
            yield rig
        rig.redis.close()


def failure(call: Callable[[], Any]) -> Exception:
    """Return the error that a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  the caller looks at it
        call()
    return raised.value


@needs("celery_once")
def test_celery_once_refuses_a_second_call_until_the_first_has_ended(rig: Rig) -> None:
    once = rig.tasks.once
    first = once.delay("once")
    assert type(failure(lambda: once.delay("once"))).__name__ == "AlreadyQueued"
    rig.redis.set("once", 1)
    assert rig.value(first.id) == "once"
    rig.until(
        lambda: not once.once_backend.redis.exists(once.get_key(("once",))), "the lock is free"
    )
    assert rig.value(once.delay("once").id) == "once"


@needs("celery_once")
def test_celery_once_keeps_the_lock_of_a_refused_call_until_it_is_cleared(rig: Rig) -> None:
    once = rig.tasks.once
    rig.redis.set("never", 1)
    large = {"resources": {"mem": "1TiB"}}
    assert isinstance(failure(lambda: once.apply_async(("never",), parsync=large)), Infeasible)
    assert type(failure(lambda: once.delay("never"))).__name__ == "AlreadyQueued"
    once.once_backend.clear_lock(once.get_key(("never",)))
    assert rig.value(once.delay("never").id) == "never"


@needs("celery_once", "celery_singleton")
def test_a_task_cancelled_before_its_start_keeps_the_locks_of_both_libraries(rig: Rig) -> None:
    once = rig.tasks.once
    single = rig.tasks.single
    results = [task.apply_async(("cancelled",), countdown=600) for task in (once, single)]
    for result in results:
        assert rig.client.cancel(result.id) == "cancelled"
    assert type(failure(lambda: once.delay("cancelled"))).__name__ == "AlreadyQueued"
    assert single.delay("cancelled").id == results[1].id


@needs("celery_singleton")
def test_celery_singleton_gives_the_first_task_to_a_second_call_and_frees_the_lock_of_a_refused_one(
    rig: Rig,
) -> None:
    single = rig.tasks.single
    large = {"resources": {"mem": "1TiB"}}
    assert isinstance(failure(lambda: single.apply_async(("single",), parsync=large)), Infeasible)
    first = single.delay("single")
    second = single.delay("single")
    assert first.id == second.id
    rig.redis.set("single", 1)
    assert rig.value(first.id) == "single"
    lock = single.generate_lock(single.name, ["single"])
    rig.until(lambda: single.get_existing_task_id(lock) is None, "the lock is free")
    assert single.delay("single").id != first.id


@needs("celery_batches")
def test_celery_batches_runs_tasks_that_are_not_placed_in_a_node(rig: Rig) -> None:
    sizes = [rig.tasks.batched.delay(number) for number in range(2)]
    placed = [rig.tasks.add.delay(number, 1) for number in range(8)]
    assert [result.get(timeout=PATIENCE_S) for result in sizes] == [2, 2]
    assert [rig.value(result.id) for result in placed] == [number + 1 for number in range(8)]


@needs("sentry_sdk")
def test_sentry_sdk_reports_the_error_of_a_placed_task_in_the_trace_of_its_caller(rig: Rig) -> None:
    id = rig.value(rig.tasks.sends_boom.delay().id)
    assert type(failure(lambda: rig.value(id))) is ValueError

    def events() -> dict[str, Any]:
        found = map(json.loads, rig.redis.lrange(rig.tasks.SENTRY, 0, -1))
        return {
            event["transaction"] + ("!" if "exception" in event else ""): event for event in found
        }

    sends = rig.tasks.sends_boom.name
    fails = rig.tasks.boom.name
    rig.until(
        lambda: {sends, f"{fails}!"} <= events().keys(),
        "the error and the transaction of its caller are sent",
    )
    error = events()[f"{fails}!"]
    assert error["tags"]["celery_task_id"] == id
    assert (
        error["contexts"]["trace"]["trace_id"] == events()[sends]["contexts"]["trace"]["trace_id"]
    )


@needs("redbeat")
def test_redbeat_sends_placed_tasks(rig: Rig) -> None:
    from celery.schedules import schedule
    from redbeat import RedBeatSchedulerEntry

    app = rig.tasks.app
    noted = rig.tasks.noted
    rig.start(
        "redbeat",
        *CELERY,
        "-A",
        APP,
        "beat",
        "-S",
        "redbeat.RedBeatScheduler",
        "--max-interval",
        "1",
    )
    entry = RedBeatSchedulerEntry(
        "beaten", noted.name, schedule(run_every=1, app=app), args=["redbeat"], app=app
    )
    entry.save()
    try:
        id = rig.until(lambda: rig.redis.lpop("redbeat"), "a task that redbeat sends has run")
    finally:
        entry.delete()
        rig.stack.terminate("redbeat")
    rig.until_placed(id.decode())


def rows(rig: Rig, select: str) -> list[Any]:
    """Return the rows of Django's database."""
    with closing(sqlite3.connect(rig.folder / "database", timeout=30)) as database:
        return database.execute(select).fetchall()


@needs("django", "django_celery_beat", "django_celery_results")
def test_django_stores_results_of_tasks_sent_on_commit_and_by_beat(
    rig: Rig,
) -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.parity.works_with.django_settings"}
    rig.stack.worker(
        f"{DJANGO}:app",
        "django",
        slots=1,
        labels={"kind": "django"},
        extra=("-l", "info", "-Q", "django"),
    )
    rig.until_up("django")
    done = run([sys.executable, "-m", DJANGO], env=env, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rig.start(
        "django-beat", *CELERY, "-A", f"{DJANGO}:app", "beat", "-l", "info", "--max-interval", "1"
    )
    select = (
        "select task_id, task_args, status, result from django_celery_results_taskresult where "
        "status = 'SUCCESS'"
    )
    try:
        found = rig.until(
            lambda: len({row[3] for row in rows(rig, select)}) > 1 and rows(rig, select),
            "both are there",
        )
    finally:
        rig.stack.terminate("django-beat")
        rig.stack.terminate("django")
    assert {row[3] for row in found} == {"16", "42"}, "what was rolled back was not submitted"
    for row in found:
        assert rig.client.status(row[0]).node == "django"


def answers(rig: Rig, url: str, count: int) -> list[SimpleNamespace]:
    """Return the answers of a web application to `count` requests at once, once it listens."""

    def ask(_: int = 0) -> SimpleNamespace | None:
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                return SimpleNamespace(**json.load(reply))
        except OSError:
            return None

    rig.until(ask, "it listens")
    with ThreadPoolExecutor(8) as pool:
        return [answer for answer in pool.map(ask, range(count)) if answer]


@needs("gunicorn")
def test_gunicorn_workers_submit_after_their_master_has_submitted(rig: Rig) -> None:
    port = free_port()
    words = [
        "--preload",
        "--workers",
        "2",
        "--bind",
        f"127.0.0.1:{port}",
        "tests.parity.works_with.web:wsgi",
    ]
    rig.start("gunicorn", sys.executable, "-m", "gunicorn", *words)
    found: list[SimpleNamespace] = []

    def both_have_answered() -> bool:
        found.extend(answers(rig, f"http://127.0.0.1:{port}/", 8))
        return len({answer.pid for answer in found}) == 2

    try:
        rig.until(both_have_answered, "each of the two processes has answered")
    finally:
        rig.stack.terminate("gunicorn")
    assert {rig.value(answer.id) for answer in found} == {3}
    assert rig.value(found[0].before) == 23


def test_an_application_of_uvicorn_submits(rig: Rig) -> None:
    port = free_port()
    words = ["--host", "127.0.0.1", "--port", str(port), "tests.parity.works_with.web:asgi"]
    rig.start("uvicorn", sys.executable, "-m", "uvicorn", *words)
    try:
        replies = answers(rig, f"http://127.0.0.1:{port}/", 8)
    finally:
        rig.stack.terminate("uvicorn")
    assert {answer.state for answer in replies} == {"succeeded"}
    assert [rig.value(answer.id) for answer in replies] == [3] * 8


def test_celery_multi_starts_and_stops_nodes(rig: Rig, tmp_path: Path) -> None:
    files = [f"--pidfile={tmp_path}/%n.pid", f"--logfile={rig.folder}/%n.log"]
    multi = [*CELERY, "multi"]
    node = ["-A", APP, "-c", "1", "-l", "info", "--parsync"]
    names = [f"{name}@{os.uname().nodename}" for name in ("first", "second")]
    started = run(
        [*multi, "start", "first", "second", *node, *files],
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        rig.until_up(*names)
    finally:
        stopped = run(
            [*multi, "stopwait", "first", "second", *files],
            cwd=REPO,
            capture_output=True,
            text=True,
        )
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    rig.until(
        lambda: not {*names} & {name for name, state in rig.nodes().items() if state == "up"},
        "they have left",
    )


POOLS = [pytest.param(pool, marks=needs(pool)) for pool in ("gevent", "eventlet")]


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_of_green_threads_is_refused_as_a_node_and_submits(rig: Rig, pool: str) -> None:
    green = [
        *CELERY,
        "-A",
        APP,
        "worker",
        "-P",
        pool,
        "-c",
        "4",
        "-n",
        f"{pool}@%h",
        "-Q",
        "green",
        "-l",
        "info",
    ]
    refused = run([*green, "--parsync"], cwd=REPO, capture_output=True, text=True)
    reason = (
        f"error: a node cannot use the pool celery.concurrency.{pool}: use prefork, threads or "
        "solo\n"
    )
    assert reason in refused.stdout + refused.stderr
    rig.start(pool, *green)
    try:
        sent = [rig.tasks.sends_add.delay(number, 5) for number in range(8)]
        ids = [result.get(timeout=PATIENCE_S) for result in sent]
        assert [rig.value(id) for id in ids] == [number + 5 for number in range(8)]
    finally:
        rig.stack.terminate(pool)
