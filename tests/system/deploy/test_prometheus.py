"""Prometheus itself takes what is in deploy/: it reads a real `parsync serve`, and each alert fires
when it should.
"""

import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from urllib.parse import urlencode

import pytest
import yaml

from parsync_redis.cli.stack import LocalStack, Process
from parsync_redis.store.server.embedded import free_port
from tests.kit import REPO
from tests.kit.servers import PRIMARIES
from tests.kit.serving import ASK_S, serving, url_of
from tests.kit.waiting import run, until
from tests.system.serve.test_serve import set_up

DEPLOY = REPO / "deploy"
CONFIG = DEPLOY / "prometheus/prometheus.yml"
RULES = DEPLOY / "prometheus/alerts.yml"
ALERTS = [
    rule["alert"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
]
BOARD = json.loads((DEPLOY / "grafana/parsync.json").read_text())

pytestmark = [
    pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: .ci/run unpacks one"),
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]

CALM = {
    'up{job="parsync"}': "1x40",
    "parsync_stale": "0x40",
    'parsync_schedulers{state="alive"}': "2x40",
    "parsync_leader": "1x40",
    'parsync_waiting_tasks{reason="full"}': "3x40",
    'parsync_waiting_tasks{reason="no_fit"}': "0x40",
    "parsync_placed_tasks": "2x40",
    'parsync_nodes{state="up"}': "4x40",
    'parsync_nodes{state="down"}': "0x40",
    'parsync_nodes{state="suspect"}': "0x40",
    "parsync_oldest_waiting_seconds": "60x40",
    'parsync_refuses_writes{keys="cluster"}': "0x40",
    'parsync_refuses_writes{keys="other"}': "0x40",
    "parsync_failed_tasks_total": "0+10x40",
    "parsync_held_back_names": "0x40",
    "parsync_died_tasks_total": "0x40",
    "parsync_lost_attempts_total": "0+1x40",
    'parsync_scheduling_delay_seconds_bucket{scheduler="s1", le="0.128"}': "0+60x40",
    'parsync_scheduling_delay_seconds_bucket{scheduler="s1", le="8.192"}': "0+60x40",
    'parsync_scheduling_delay_seconds_bucket{scheduler="s1", le="+Inf"}': "0+60x40",
    'parsync_view_age_max_seconds{scheduler="s1"}': "1x40",
    "parsync_own_ticks_total": "0+1x40",
    "parsync_claims_total": "0+120x40",
    "parsync_conflicts_total": "0+12x40",
}
"""The series of a busy cluster that is well, a sample a minute."""

NO_TASKS = {'parsync_waiting_tasks{reason="full"}': "0x40", "parsync_placed_tasks": "0x40"}
CHANGES = {
    "ParsyncServeIsGone": {'up{job="parsync"}': "0x40"},
    "ParsyncCannotBeRead": {"parsync_stale": "1x40"},
    "ParsyncServerRefusesWrites": {
        'parsync_refuses_writes{keys="cluster"}': "1x40",
        'parsync_schedulers{state="alive"}': "0x40",
        "parsync_leader": "0x40",
    },
    "ParsyncNoScheduler": {'parsync_schedulers{state="alive"}': "0x40", "parsync_leader": "0x40"},
    "ParsyncNoLeader": {"parsync_leader": "0x40"},
    "ParsyncNoNodeTakesTasks": {'parsync_nodes{state="up"}': "0x40"},
    "ParsyncNodesDown": {'parsync_nodes{state="down"}': "2x40"},
    "ParsyncNodesSuspect": {'parsync_nodes{state="suspect"}': "1x40"},
    "ParsyncTasksFitNowhere": {'parsync_waiting_tasks{reason="no_fit"}': "1x40"},
    "ParsyncTasksWaitLong": {"parsync_oldest_waiting_seconds": "1900x40"},
    "ParsyncManyTasksFail": {"parsync_failed_tasks_total": "0+30x40"},
    "ParsyncNamesAreHeldBack": {"parsync_held_back_names": " ".join(["0 1 0 2"] * 10)},
    "ParsyncTasksDie": {"parsync_died_tasks_total": "0x25 1x15"},
    "ParsyncAttemptsAreLost": {"parsync_lost_attempts_total": "0+2x40"},
    "ParsyncPlacingIsSlow": {
        'parsync_scheduling_delay_seconds_bucket{scheduler="s1", le="0.128"}': "0x40"
    },
    "ParsyncViewsAreOld": {'parsync_view_age_max_seconds{scheduler="s1"}': "40x40"},
    "ParsyncTicksAreNotHeard": {"parsync_own_ticks_total": "0+120x40"},
    "ParsyncManyConflicts": {"parsync_conflicts_total": "0+60x40"},
}
"""The series that differ when an alert fires."""


def at(series, instance):
    """Return the series of one service: Prometheus adds the labels `job` and `instance`."""
    name, _, labels = series.rstrip("}").partition("{")
    return (
        f"{name}{{"
        + ", ".join(dict.fromkeys([*filter(None, labels.split(", ")), 'job="parsync"', instance]))
        + "}"
    )


def firing(folder, change, wanted):
    """Let promtool compare the alerts that fire after 30 minutes with those wanted.

    Another cluster is well.
    """
    given = {at(name, 'instance="a"'): values for name, values in {**CALM, **change}.items()}
    given |= {at(name, 'instance="b"'): values for name, values in CALM.items()}
    asked = 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}", instance="a"}}', "value": 1} for name in wanted]
    scene = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": [{"expr": asked, "eval_time": "30m", "exp_samples": samples}],
    }
    text = yaml.safe_dump(
        {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [scene]}
    )
    (folder / "scene.yml").write_text(text)
    done = run(
        ["promtool", "test", "rules", str(folder / "scene.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_only_the_expected_alert_fires_for_its_cluster(tmp_path, alert):
    firing(tmp_path, CHANGES[alert], [alert])


def test_schedulers_that_are_silent_beside_a_primary_that_has_other_keys_are_dead(tmp_path):
    refuses = {'parsync_refuses_writes{keys="other"}': "1x40"}
    firing(tmp_path, refuses, ["ParsyncServerRefusesWrites"])
    firing(
        tmp_path,
        refuses | CHANGES["ParsyncNoScheduler"],
        ["ParsyncServerRefusesWrites", "ParsyncNoScheduler"],
    )


def test_no_alert_fires_of_a_cluster_that_is_well_or_has_nothing_to_do(tmp_path):
    firing(tmp_path, {}, [])
    nobody = {**CHANGES["ParsyncNoScheduler"], **CHANGES["ParsyncNoNodeTakesTasks"]}
    firing(tmp_path, {**NO_TASKS, **nobody}, [])


def test_promtool_accepts_the_configuration_and_the_rules():
    for words in (["config", CONFIG], ["rules", "--lint=all", "--lint-fatal", RULES]):
        done = run(["promtool", "check", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


NO_RUNS = "Run time, by name: 95th percentile"
"""The panel that has no data if no worker ran a task."""


class Prometheus:
    """A running Prometheus with the configuration of deploy/, but for where and how
    often it reads.
    """

    def __init__(self, folder, target):
        config = yaml.safe_load(CONFIG.read_text())
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [str(RULES)]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
        ]
        command.append(f"--web.listen-address={self.url.removeprefix('http://')}")
        self.process = Process("prometheus", command, os.environ, folder, print)

    def ask(self, path, **query):
        """Return the data of an answer of the API, None before Prometheus answers. An error fails the test."""
        try:
            where = f"{self.url}/api/v1/{path}?{urlencode(query)}"
            with urllib.request.urlopen(where, timeout=ASK_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except OSError:
            return None

    def value(self, text):
        """Return the series that an expression has now: labels and value."""
        return (self.ask("query", query=text) or {"result": []})["result"]

    def rules(self):
        """Return the alert rules, with their health."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def stop(self):
        self.process.send(signal.SIGTERM)
        self.process.end(time.monotonic() + 20)


def without_data(prometheus, known):
    """Return the panels of the board with an expression that has no data; known: the values of
    Grafana's variables.
    """
    found = []
    for panel in BOARD["panels"]:
        texts = [target["expr"] for target in panel["targets"]]
        for name, value in known.items():
            texts = [text.replace(name, value) for text in texts]
        found += [panel["title"]] if not all(map(prometheus.value, texts)) else []
    return found


@pytest.mark.serial
@pytest.mark.one_server(0)
def test_prometheus_reads_serve_and_takes_every_expression_of_rules_and_board(store, tmp_path):
    driver = set_up(store)
    driver.node("n1", 4, {"gpu": 2}, {"zone": "a"})
    driver.submit("large", {"slots": 9, "wait_for_capacity": True}, name="proj.large")
    driver.submit("placed", name="proj.small")
    with (
        LocalStack(store.keys.cluster, url_of(store)) as stack,
        serving(url_of(store), store.keys.cluster) as serve,
    ):
        stack.scheduler()
        place = serve.url.removeprefix("http://")
        prometheus = Prometheus(tmp_path, place)
        try:
            until(
                lambda: prometheus.value("up == 1 and on () parsync_placed_tasks == 1"),
                "it reads the metrics",
            )
            until(
                lambda: prometheus.value('parsync_waiting_tasks{reason="no_fit"} == 1'),
                "it knows why a task waits",
            )
            until(
                lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()),
                "the rules are evaluated",
            )
            assert {rule["name"]: rule["health"] for rule in prometheus.rules()} == dict.fromkeys(
                ALERTS, "ok"
            )
            known = {"$__rate_interval": "1m", "$instance": place}
            until(
                lambda: without_data(prometheus, known) == [NO_RUNS], "all other panels have data"
            )
        finally:
            prometheus.stop()
