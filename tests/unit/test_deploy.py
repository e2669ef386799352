"""The files in deploy/ fit the program: they ask for metrics, labels and values that
/metrics has.
"""

import json
import re
from urllib.parse import urlsplit

import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from parsync_redis.cli.options import parse_requirements
from parsync_redis.inspect.tenancy import Tenancy
from parsync_redis.integration.worker_options import WORKER_OPTIONS
from parsync_redis.model.account_views import LimitView, TenantView
from parsync_redis.model.devices import read_indexes
from parsync_redis.model.node import NodeState
from parsync_redis.model.octaves import TimeHistogram
from parsync_redis.model.views import KindView, NodeView
from parsync_redis.placement.reasons import OTHER_REASON, REASON_PATTERNS
from parsync_redis.serve.api import MACHINE_PARAMS, SLOTS_PARAM
from parsync_redis.serve.counting import SurveyCounts
from parsync_redis.serve.demand import Machine, measure_demand
from parsync_redis.serve.metrics import render_metrics
from parsync_redis.serve.query import Query
from parsync_redis.serve.survey import Survey
from parsync_redis.serve.surveyor import LatestSurvey
from parsync_redis.store.reads.demand import Counts
from parsync_redis.store.reads.schedulers import SchedulerView
from tests.kit import REPO
from tests.kit.documents import Document, tables
from tests.kit.offenders import none_wrong

DEPLOY = REPO / "deploy"
FIGURES = {
    "delay_ms": "12.5",
    "in_flight": "3",
    "view_age_ms": "100",
    "view_age_max_ms": "250",
    "view_ages_ms": "250 0",
    "delays": "12.5 3:1",
}
NODE = NodeView(
    "n1", 0, NodeState.UP, False, 1, 1.0, 4, 3, 1, {"gpu": 2}, {"gpu": 1.5}, {"zone": "a"}
)
KIND = KindView(
    "proj.train slots=2", "proj.train", "slots=2", "", 7, 0, "only node n1 fits: it is full"
)
SURVEY = Survey(
    10_000,
    [],
    [NODE],
    [SchedulerView("s1", 0, True, 1, FIGURES, 0.1, True)],
    [KIND],
    [],
    {"proj.train": 4_000},
    Counts(1, 2, 3, 4, 5, 6),
    [],
    tenancy=Tenancy(
        [TenantView("acme", 1.0, 0.5, 1.0, {"slots": 2}, 1, 3, None, {}, {}, "age", "fair")],
        [LimitView("stripe", 5, 1, 1, 3)],
    ),
)
TIMES = {"proj.train": TimeHistogram.of("7000 12:1")}
COUNTED = SurveyCounts({}, TIMES, TIMES)
REASONS = [*dict(REASON_PATTERNS), OTHER_REASON]
LABELS: dict[str, set[str] | None] = {
    "state": {*NodeState, "alive", "silent"},
    "reason": {*REASONS},
    "keys": {"cluster", "other"},
    "name": None,
    "node_class": None,
    "resource": None,
    "scheduler": None,
    "partition": None,
    "tenant": None,
    "amount": None,
    "limit": None,
}
"""The labels of the metrics, with their values where there are only some."""

PLACE = {"job", "instance"}
"""The labels that Prometheus adds."""

OF_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


def samples():
    """Return the samples of a cluster that has everything: name -> labels."""
    body = render_metrics(LatestSurvey(SURVEY, 0.0, 0.1, "", 0, COUNTED)).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(body):
        assert family.documentation, family.name
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions():
    """Return each expression of the rules and the board, with the name of its rule or panel."""
    rules = [rule for group in yaml.safe_load(alerts())["groups"] for rule in group["rules"]]
    found = [(rule["alert"], rule["expr"]) for rule in rules]
    return found + [
        (panel["title"], target["expr"])
        for panel in board()["panels"]
        for target in panel["targets"]
    ]


def alerts():
    return (DEPLOY / "prometheus/alerts.yml").read_text()


def board():
    return json.loads((DEPLOY / "grafana/parsync.json").read_text())


def test_an_expression_names_metrics_labels_and_values_that_there_are():
    there = samples()
    assert len(expressions()) > 40
    wrong = [f"{name}: {why}" for name, text in expressions() for why in wrong_in(text, there)]
    none_wrong("an expression names what /metrics has", wrong)


def wrong_in(text, there):
    """Say what an expression names that there is not; there: the labels of each metric."""
    named = re.findall(r"\b(parsync_\w+)(?:\{([^}]*)\})?", text)
    if not named and not text.startswith("up{"):
        yield f"no metric in {text}"
    if text.count("(") != text.count(")"):
        yield f"brackets of {text}"
    labels = PLACE.union(*(there.get(name, ()) for name, _ in named))
    for name, matchers in named:
        if name not in there:
            yield f"no metric {name}"
        for label, _, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            known = LABELS.get(label)
            if label not in PLACE.union(there.get(name, ())):
                yield f"{name} has no label {label}"
            elif known is not None and not {*value.split("|")} <= known:
                yield f"{label} of {name} is never {value}"
    for grouped in re.findall(r"\bby \(([^)]*)\)", text):
        if not {*grouped.split(", ")} <= labels:
            yield f"no labels {grouped} in {text}"


def test_several_clusters_do_not_mix():
    rules = [rule for group in yaml.safe_load(alerts())["groups"] for rule in group["rules"]]
    for rule in rules:
        assert not re.search(
            r"\b(sum|max|min|avg|count)\b(?! by \(job, instance(?:, le)?\) \()", rule["expr"]
        ), rule["alert"]
        assert not re.search(r"\b(and|or|unless)\b(?! on \(job, instance\) )", rule["expr"]), rule[
            "alert"
        ]
        assert "absent" not in rule["expr"]
    (scraped,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())[
        "scrape_configs"
    ]
    assert f'up{{job="{scraped["job_name"]}"}} == 0' in [rule["expr"] for rule in rules]
    for panel in board()["panels"]:
        for target in panel["targets"]:
            named = re.findall(r"\bparsync_\w+(.{22})", target["expr"] + " " * 22)
            assert named == ['{instance="$instance"' + found[-1] for found in named], panel["title"]
    (_, variable) = board()["templating"]["list"]
    assert (variable["name"], variable["query"]["query"]) == (
        "instance",
        "label_values(parsync_stale, instance)",
    )


def test_no_alert_is_critical_in_a_readable_cluster_without_waiting_or_running_tasks():
    rules = [rule for group in yaml.safe_load(alerts())["groups"] for rule in group["rules"]]
    critical = {
        rule["alert"]: rule["expr"] for rule in rules if rule["labels"]["severity"] == "critical"
    }
    assert critical.pop("ParsyncCannotBeRead") == "parsync_stale == 1"
    assert (
        critical.pop("ParsyncServerRefusesWrites")
        == "sum by (job, instance) (parsync_refuses_writes) > 0"
    ), "nothing can be submitted"
    for name, text in critical.items():
        last = text.split(" and on (job, instance) ")[-1]
        assert last.startswith("sum by (job, instance) (parsync_waiting_tasks)"), name
        assert last.endswith(" > 0"), name


def test_the_rules_have_the_fields_of_the_format():
    found = yaml.safe_load(alerts())
    assert set(found) == {"groups"}
    names = []
    for group in found["groups"]:
        assert {"name", "rules"} == set(group)
        for rule in group["rules"]:
            assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
            assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}
            names.append(rule["alert"])
    assert len(names) == len(set(names)) >= 10
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]


def test_the_board_has_panels_that_do_not_overlap():
    found = board()
    assert found["uid"] == "parsync"
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])


def test_keda_asks_for_machines_as_its_workers_are_and_stands_still_without_an_answer():
    scaled, workers = yaml.safe_load_all((DEPLOY / "keda/scaledobject.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    query = Query(
        Request({"type": "http", "query_string": url.query.encode()}),
        MACHINE_PARAMS,
    )
    machine = Machine.of(
        query.number(SLOTS_PARAM, 0),
        {},
        query.pairs("label"),
        query.all("taint"),
        parse_requirements("require", query.all("require")),
        devices=read_indexes("device", query.all("device")),
    )
    needs = "slots=1 gpu=1 gpu_model:a100 parsync.taint:a100"
    fields = {name: getattr(SURVEY, name) for name in Survey.__slots__}
    waits = Survey(
        **{**fields, "nodes": [], "kinds": [KindView("", "proj.train", needs, "", 9, 0, "")]}
    )
    assert url.path == "/api/v1/demand"
    assert measure_demand(waits, machine)[trigger["metadata"]["valueLocation"]] == 3
    assert trigger["metadata"]["targetValue"] == "1", "a machine is a pod"
    assert measure_demand(SURVEY, machine)["machines"] == 0, (
        "tasks that do not require the label are not counted"
    )
    assert scaled["spec"]["fallback"]["behavior"] == "currentReplicas"
    assert scaled["spec"]["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    (container,) = workers["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    said = {
        flag: words[words.index(f"--parsync-{flag}") + 1]
        for flag in ("slots", "device", "label", "taint")
    }
    assert said == {flag: query.text(flag) for flag in said}
    assert {word for word in words if word.startswith("--parsync")} <= {
        names[0] for names, _ in WORKER_OPTIONS
    }
    devices = read_indexes("device", query.all("device"))
    assert container["resources"]["limits"] == {"nvidia.com/gpu": len(devices["gpu"])}


def test_the_page_has_every_metric_with_its_labels_and_every_reason():
    rows = list(tables(Document("docs/serve.md").text))
    there = {row[0].strip("`"): row[1] for row in rows if row[0].startswith("`parsync_")}
    found = {
        OF_HISTOGRAM.sub("", name): sorted(labels - {"le"}) for name, labels in samples().items()
    }
    assert there == {
        name: ", ".join(f"`{label}`" for label in labels) for name, labels in found.items()
    }
    assert [row[0].strip("`") for row in rows if row[0].strip("`") in REASONS] == REASONS


def test_a_hostile_name_stays_one_label():
    kind = KindView('a"} 1\nb slots=1', 'a"} 1\nb', "slots=1", "", 1, 0, "\n")
    fields = {name: getattr(SURVEY, name) for name in Survey.__slots__}
    body = render_metrics(
        LatestSurvey(Survey(**{**fields, "kinds": [kind], "oldest_ms": {}}))
    ).decode()
    families = {family.name: family for family in text_string_to_metric_families(body)}
    (sample,) = families["parsync_waiting_tasks_by_name"].samples
    assert (sample.labels, sample.value) == ({"name": 'a"} 1\nb'}, 1)
