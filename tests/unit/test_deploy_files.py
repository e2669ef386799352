"""The ways to deploy fit the program: units of systemd, the Helm chart, the services of docker
compose.

Helm itself, as a library, renders the chart. systemd checks its units where systemd is installed.
"""

import json
import re
import shutil
import sys
from urllib.parse import urlsplit

import pytest
import yaml

from parsync_redis import __version__
from parsync_redis.model.address import check_address
from parsync_redis.settings import Settings
from tests.kit import REPO
from tests.kit.blocks import check_celery, check_parsync
from tests.kit.documents import Document
from tests.kit.waiting import run

SYSTEMD = REPO / "deploy/systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
CHART = REPO / "deploy/helm/parsync"
KNOWN = {f"PARSYNC_{name.upper()}" for name in Settings.model_fields}


# -- systemd ---------------------------------------------------------------------------------------


def entries(unit):
    """Return the entries of a unit: (section, name, value)."""
    section = ""
    found = []
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, sign, value = line.partition("=")
            assert sign, line
            found.append((section, name, value))
    return found


def environment(name):
    """Return the variables of a file for EnvironmentFile=."""
    lines = [
        line
        for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_there_is_with_variables_that_are_known(unit):
    found = entries(unit)
    (start,) = [value for _, name, value in found if name == "ExecStart"]
    given: dict[str, str] = {}
    for _, name, value in found:
        if name == "EnvironmentFile":
            given |= environment(re.sub(r"-%i", "", value.removeprefix("/etc/parsync/")))
        if name == "Environment":
            given |= dict([value.split("=", 1)])
    assert {name for name in given if name.startswith("PARSYNC_")} <= KNOWN
    assert {"PARSYNC_URL", "PARSYNC_CLUSTER", "PARSYNC_PASSWORD_FILE"} <= given.keys()
    assert given["PARSYNC_PASSWORD_FILE"].startswith("%d/"), "the credential's folder"
    (secret,) = [value for _, name, value in found if name == "LoadCredential"]
    login = urlsplit(check_address(given["PARSYNC_URL"])).username
    assert login == f"parsync-{secret.removeprefix('password:/etc/parsync/secrets/')}"
    program, *words = re.sub(r"\$\{?(\w+)\}?", lambda name: given[name[1]], start).split()
    {"parsync": check_parsync, "celery": check_celery}[program.rpartition("/")[2]](words)


def test_there_are_units_for_each_role_and_the_page_installs_their_files():
    assert [unit.name for unit in UNITS] == [
        "parsync-scheduler.service",
        "parsync-serve.service",
        "parsync-worker@.service",
    ]
    page = Document("docs/deploy.md").text
    for path in SYSTEMD.iterdir():
        assert path.suffix == ".service" or f"deploy/systemd/{path.name}" in page, path.name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        text = re.sub(r"/opt/parsync/venv/bin/\w+", sys.executable, text)
        (tmp_path / unit.name).write_text(text)
    done = run(
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())], capture_output=True, text=True
    )
    wrong = [
        line for line in done.stderr.splitlines() if str(tmp_path) in line or "parsync" in line
    ]
    assert (done.returncode, wrong) == (0, []), done.stderr


# -- Kubernetes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helm():
    return pytest.importorskip(
        "helm_python", reason="Helm's library has a wheel for Linux on x86_64 only"
    )


@pytest.fixture(scope="module")
def values():
    """Return the values of docs/deploy.md."""
    (block,) = Document("docs/deploy.md").blocks("yaml")
    return yaml.safe_load(block.text)


@pytest.fixture
def chart(helm):
    with helm.Chart.load(str(CHART)) as found:
        yield found


def rendered(chart, values):
    """Return the objects that Kubernetes gets: (kind, name) -> object."""
    chart.validate_schema(values)
    texts = chart.render(values, name="demo", namespace="prod")
    objects = [
        one
        for name, text in texts.items()
        if not name.endswith(".txt")
        for one in yaml.safe_load_all(text)
    ]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one}


def test_the_chart_of_the_page_has_a_deployment_for_each_role_and_class(chart, values):
    objects = rendered(chart, values)
    deployments = {
        name: one["spec"] for (kind, name), one in objects.items() if kind == "Deployment"
    }
    assert deployments.keys() == {
        "demo-scheduler",
        "demo-serve",
        "demo-worker-cpu",
        "demo-worker-gpu",
    }
    for name, spec in deployments.items():
        pod = spec["template"]
        assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        role = {"demo-scheduler": "scheduler", "demo-serve": "viewer"}.get(name, "worker")
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert {variable for variable in env if variable.startswith("PARSYNC_")} <= KNOWN
        assert env["PARSYNC_URL"] == f"redis://parsync-{role}@redis.data:6379/0"
        assert env["PARSYNC_PASSWORD_FILE"] == f"/run/secrets/parsync/{role}"
        (secret,) = [volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume]
        assert secret["items"] == [{"key": role, "path": role}], (
            "no pod has the password of another role"
        )
        mounts = {one["name"] for one in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
        program, *words = container["args"]
        {"parsync": check_parsync, "celery": check_celery}[program](words)
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (service,) = [one for (kind, _), one in objects.items() if kind == "Service"]
    assert service["spec"]["selector"] == deployments["demo-serve"]["selector"]["matchLabels"]


def test_the_flags_of_a_worker_class_equal_the_chart_values(chart, values):
    objects = rendered(chart, values)
    words = objects["Deployment", "demo-worker-gpu"]["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    said = {
        words[at]: words[at + 1]
        for at in range(len(words) - 1)
        if words[at].startswith("--parsync-")
    }
    assert said == {
        "--parsync-node": "$(POD_NAME)",
        "--parsync-slots": "4",
        "--parsync-score": "5",
        "--parsync-label": "gpu_model=a10",
        "--parsync-taint": "gpu",
        "--parsync-device": "gpu=0-3",
        "--parsync-device-resource": "gpu.mem=24GiB",
    }
    assert words[-1] == "--parsync-only", "a class without queues runs placed tasks only"
    values = {
        **values,
        "secret": "",
        "nodeClasses": [{"name": "x", "slots": 1, "labels": {"disk": ["a", "b"]}}],
    }
    spec = rendered(chart, {**values, "serve": {"enabled": False}})["Deployment", "demo-worker-x"][
        "spec"
    ]
    (container,) = spec["template"]["spec"]["containers"]
    assert [word for word in container["args"] if word.startswith("disk=")] == ["disk=a", "disk=b"]
    assert {"name": "PARSYNC_URL", "value": "redis://redis.data:6379/0"} in container["env"], (
        "no login"
    )
    assert "replicas" not in spec, "whatever scales the class says how many"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodeclasses": []}, "nodeclasses"),
        ({"app": ""}, "/app"),
        ({"image": {"repository": "x"}}, "/image"),
        ({"redis": {"scheme": "http", "address": "r"}}, "/redis/scheme"),
        ({"redis": {"scheme": "redis", "address": "me:secret@r"}}, "/redis/address"),
        ({"scheduler": {"replicas": 0}}, "/scheduler/replicas"),
        ({"nodeClasses": [{"name": "a", "slots": 0}]}, "/nodeClasses/0/slots"),
        (
            {"nodeClasses": [{"name": "a", "slots": 1, "resources": {"mem": "lots"}}]},
            "/nodeClasses/0/resources/mem",
        ),
        ({"nodeClasses": [{"name": "a", "slots": 1, "device": {}}]}, "/nodeClasses/0"),
    ],
)
def test_the_schema_refuses_values_that_the_chart_does_not_know(helm, chart, values, change, path):
    with pytest.raises(helm.HelmValuesError, match=re.escape(path)):
        chart.validate_schema({**values, **change})


def test_the_user_of_the_image_is_a_number_because_no_pod_may_run_as_root(chart, values):
    (user,) = re.findall(
        r"^USER (.*)$", (REPO / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert re.fullmatch(r"[1-9]\d*", user)
    for (kind, _), one in rendered(chart, values).items():
        assert (
            kind != "Deployment"
            or one["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
        )


def test_the_chart_is_of_this_version():
    found = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert found["appVersion"] == __version__
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert defaults.keys() == schema["properties"].keys() - {"global"}


# -- docker compose --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load((REPO / "docker-compose.yml").read_text(encoding="utf-8"))


def test_the_profile_monitor_adds_three_services_and_nothing_else_is_open(services):
    monitor = {
        name for name, one in services["services"].items() if one.get("profiles") == ["monitor"]
    }
    assert monitor == {"serve", "prometheus", "grafana"}
    for name, one in services["services"].items():
        assert name in monitor or "ports" not in one
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        for port in one.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\$\{PARSYNC_\w+:-\d+\}:\d+", port)
        assert ("networks" in one) != ("network_mode" in one), f"{name} has no network, or two"
        assert {*one.get("networks", ())} <= services["networks"].keys()
        assert {*one.get("secrets", ())} <= services["secrets"].keys()
        for volume in one.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (
                (REPO / source).exists()
                if source.startswith("./")
                else source in services["volumes"]
            ), volume
    assert services["networks"]["state"]["internal"], "Redis is not published"


def test_a_service_of_ours_runs_a_command_that_there_is_with_its_own_login(services):
    roles = {"scheduler": "scheduler", "worker": "worker", "serve": "viewer"}
    for name, role in roles.items():
        one = services["services"][name]
        program, *words = one["command"].split()
        {"parsync": check_parsync, "celery": check_celery}[program](words)
        assert (
            one["environment"]["PARSYNC_URL"]
            == f"redis://${{PARSYNC_CLUSTER:-parsync}}-{role}@redis:6379/0"
        )
        assert one["environment"]["PARSYNC_PASSWORD_FILE"] == f"/run/secrets/{role}"
        assert one["secrets"] == [role]


def test_grafana_finds_prometheus_and_the_board(services):
    grafana = services["services"]["grafana"]
    mounts = {
        where: what for what, where, *_ in (volume.split(":") for volume in grafana["volumes"])
    }
    folder = REPO / mounts["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((folder / "datasources/parsync.yml").read_text())["datasources"]
    assert source["url"] == "http://serve:9090"
    assert services["services"]["prometheus"]["network_mode"] == "service:serve", (
        "so it has the ports of serve"
    )
    (provider,) = yaml.safe_load((folder / "dashboards/parsync.yml").read_text())["providers"]
    board = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert board in mounts
    assert board.startswith(provider["options"]["path"] + "/")
    assert "/etc/prometheus" in [
        v.split(":")[1] for v in services["services"]["prometheus"]["volumes"]
    ]
