"""The commands on a cluster that does not exist name the other clusters of the server, and exit with code 1 or 2."""

from typer.testing import CliRunner

from parsync_redis.cli.app import app
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster

COMMANDS = (
    "doctor",
    "nodes",
    "nodes n1",
    "nodes show n1",
    "partitions",
    "schedulers",
    "demand",
    "names",
    "tasks",
    "dead list",
    "events",
    "quarantine list",
    "status t",
    "explain t",
    "plan work",
    "drain n1",
    "purge --state dead",
    "tasks requeue --all",
    "cancel --name work",
)
"""Commands that find nothing in a cluster that is not there."""


def test_every_command_reports_a_wrong_cluster_name_and_exits_as_doctor_does(
    store: Store,
) -> None:
    right = store.keys.cluster
    wrong = right + "s"
    url = f"redis://{store.address}/0"
    join_cluster(store, Settings(url=url, cluster=right, partitions=1), create=True)
    flags = ["--url", url, "--cluster", wrong]
    for command in COMMANDS:
        done = CliRunner().invoke(app, [*command.split(), *flags])
        told = f"{done.output} {done.exception}"
        assert f"no scheduler has joined cluster '{wrong}' on " in told, command
        assert f"(other clusters there: {right})" in told, command
        assert f"parsync scheduler --cluster {wrong}" in told, command
        assert done.exit_code in (1, 2), command
