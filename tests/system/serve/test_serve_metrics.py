"""/metrics of a real `parsync serve`: Prometheus reads the figures of Redis, and labels are
bounded.
"""

import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.task import TaskState
from parsync_redis.serve.feed import EventFeed
from tests.kit.servers import PRIMARIES
from tests.kit.serving import serving, url_of
from tests.kit.waiting import until
from tests.system.serve.test_serve import set_up

pytestmark = [
    pytest.mark.serial,
    pytest.mark.one_server(0),
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]


def metrics(serve):
    """Return the samples of /metrics: (name, labels...) -> value."""
    status, body, headers = serve.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            key = (sample.name.removeprefix("parsync_"), *sample.labels.values())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def test_the_metrics_equal_the_state(store):
    driver = set_up(store)
    driver.node("n1", 4, {"gpu": 2}, {"zone": "a"})
    driver.node("n2", 8, p=1)
    driver.node("n3", 2, p=1)
    driver.run(driver.commands.set_node(1, "n3", "drain", None, "no deadline"))
    driver.bring(TaskState.DEAD, "dead")
    attempt = driver.taken("held", {"slots": 2, "resources": {"gpu": 1}})
    driver.held("held", attempt, slots=(0, 1), needs="slots=2 gpu=1")
    for at in range(3):
        driver.submit(f"w{at}", {"slots": 4}, name="proj.large")
    driver.submit("o1", name="proj.small", delay_ms=3_600_000)
    driver.submit("o2", {"priority": 3}, name="proj.small")
    driver.run(
        driver.commands.set_reason([("proj.large slots=4", "only node n2 fits: it is full")])
    )
    driver.run(
        driver.commands.report_failures(0, "n1", 1, 0, False, [("proj.bad", 5, 5, 5, 600_000)])
    )
    with serving(url_of(store), store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        found = metrics(serve)
    assert (
        found["failed_tasks_total",],
        found["held_back_names",],
        found["refuses_writes", "cluster"],
    ) == (0, 1, 0)
    assert found["waiting_tasks", "full"] == 3
    assert found["waiting_tasks", "unexplained"] == 1
    assert found["wanted_slots", "full"] == 12
    assert found["waiting_tasks_by_name", "proj.large"] == 3
    assert found["waiting_tasks_by_name", "proj.small"] == 1
    assert (found["delayed_tasks",], found["dead_tasks",], found["taken_tasks",]) == (1, 1, 1)
    assert (found["lost_attempts_total",], found["died_tasks_total",]) == (1, 1)
    assert (found["nodes", "up"], found["nodes", "draining"], found["nodes", "down"]) == (2, 1, 0)
    assert (
        found["slots", "gpu=2 zone:a"],
        found["free_slots", "gpu=2 zone:a"],
        found["held_slots", "gpu=2 zone:a"],
    ) == (
        4,
        2,
        2,
    )
    assert (found["slots", "slots only"], found["free_slots", "slots only"]) == (10, 8)
    assert (
        found["resource_amount", "gpu=2 zone:a", "gpu"],
        found["resource_left", "gpu=2 zone:a", "gpu"],
    ) == (2, 1)
    assert (found["stale",], found["schedulers", "alive"], found["leader",]) == (0, 0, 0)
    assert found["survey_age_seconds",] < 5


def test_the_oldest_task_is_found_behind_newer_ones_of_higher_priority(store):
    driver = set_up(store)
    driver.submit("old", name="proj.mixed")
    began_ms = driver.line("old").ready_ms
    until(lambda: driver.record("old").now_ms >= began_ms + 2000, "two seconds pass")
    driver.submit("new", {"priority": 9}, name="proj.mixed")
    driver.submit("other", name="proj.other")
    with serving(url_of(store), store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        found = metrics(serve)
    assert (
        found["oldest_waiting_seconds",]
        == found["oldest_waiting_by_name_seconds", "proj.mixed"]
        >= 2
    )
    assert (
        found["oldest_waiting_by_name_seconds", "proj.other"] < found["oldest_waiting_seconds",] - 1
    )


def test_a_thousand_names_classes_and_resources_make_few_series(store):
    driver = set_up(store)
    for at in range(60):
        driver.node(f"n{at}", 1 + at, {f"r{at}": 1}, {"host": f"h{at}"}, p=at % 2)
        for _ in range(1 + at % 3):
            driver.submit(f"t{at}-{_}", name=f"proj.n{at}")
    with serving(url_of(store), store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        found = metrics(serve)
    names = {key[1]: value for key, value in found.items() if key[0] == "waiting_tasks_by_name"}
    assert (len(names), sum(names.values()), names["other"]) == (21, 120, 60)
    classes = {key[1]: value for key, value in found.items() if key[0] == "slots"}
    assert (len(classes), sum(classes.values())) == (21, 60 * 61 / 2)
    assert "r59=1 host:h59" in classes
    assert len({key[2] for key in found if key[0] == "resource_amount"}) <= 20
    assert len(found) < 300


def test_schedulers_report_their_figures_and_counters_never_fall(store):
    driver = set_up(store)
    with (
        LocalStack(store.keys.cluster, url_of(store)) as stack,
        serving(url_of(store), store.keys.cluster) as serve,
    ):
        stack.scheduler()
        until(lambda: metrics(serve).get(("schedulers", "alive")) == 1, "a scheduler is alive", 60)
        until(
            lambda: metrics(serve).get(("view_age_seconds", "scheduler-1")) is not None,
            "it reports its view",
            60,
        )
        assert metrics(serve)["leader",] == 1
        driver.node("n1", 2)
        driver.submit("a")
        until(lambda: metrics(serve)["placed_total",] == 1, "a task is placed", 60)
        stack.processes["scheduler-1"].send(signal.SIGTERM)
        until(lambda: metrics(serve)["schedulers", "alive"] == 0, "it has left", 60)
        assert metrics(serve)["placed_total",] == 1
        assert ("view_age_seconds", "scheduler-1") not in metrics(serve)


def test_without_a_survey_the_metrics_report_its_absence():
    with serving("redis://127.0.0.1:1/0", "demo") as serve:
        serve.until_json("/healthz", lambda found: "127.0.0.1" in found["error"])
        found = metrics(serve)
    assert found["stale",] == 1
    assert found["survey_errors_total",] >= 1
    assert ("nodes", "up") not in found


def test_failures_are_counted_from_when_the_service_begins_to_follow(store):
    drive = set_up(store)
    with ParsyncClient.from_url(url_of(store), drive.keys.cluster) as client:
        feed = EventFeed(client)
        drive.bring(TaskState.FAILED, "before")
        feed.look()
        assert feed.failed == 0
        drive.bring(TaskState.FAILED, "after")
        drive.bring(TaskState.CANCELLED, "cancelled")
        feed.look()
        assert feed.failed == 1
