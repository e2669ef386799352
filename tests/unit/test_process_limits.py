"""The CPUs and the memory that a worker may use, and the warnings for a node that offers more."""

import os
from pathlib import Path

import pytest

from parsync_redis.model.needs import Resources
from parsync_redis.worker.node.process_limits import cpu_limit, memory_limit, warn_of_limits
from tests.unit.test_node_devices import spec

CPUS = sorted(os.sched_getaffinity(0))
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
V2 = "0::/system.slice/worker.service\n"
V1 = "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
NO_LIMIT = "9223372036854771712"


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Return a folder with what Linux shows a process of its control groups in /proc and /sys."""
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": files[name] for name in files},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "cpus", "memory"),
    [
        pytest.param("", {}, len(CPUS), MEMORY, id="no control groups"),
        pytest.param(
            "0::/\n",
            {"cpu.max": "50000 100000", "memory.max": "1048576"},
            0.5,
            2**20,
            id="v2, in a container",
        ),
        pytest.param(
            "0::/\n",
            {"cpu.max": "max 100000", "memory.max": "max"},
            len(CPUS),
            MEMORY,
            id="v2, no limit",
        ),
        pytest.param(
            V2,
            {
                "system.slice/worker.service/cpu.max": "max 100000",
                "system.slice/worker.service/memory.max": "4194304",
                "system.slice/cpu.max": "75000 100000",
                "system.slice/memory.max": "2097152",
            },
            0.75,
            2**21,
            id="v2, the group around its own is smaller",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "25000",
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
                "memory/docker/abc/memory.limit_in_bytes": "1048576",
            },
            0.25,
            2**20,
            id="v1, on the host",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "25000",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "1048576",
            },
            0.25,
            2**20,
            id="v1, in a container that is told the host's path",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": NO_LIMIT,
            },
            len(CPUS),
            MEMORY,
            id="v1, no limit",
        ),
    ],
)
def test_the_smallest_limit_holds(
    groups: str, files: dict[str, str], cpus: float, memory: int, tmp_path: Path
) -> None:
    root = machine(tmp_path, groups, files)
    assert cpu_limit(root).thousandths == cpus * 1000
    assert memory_limit(root).thousandths == memory * 1000


def test_an_offer_beyond_the_container_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = machine(tmp_path, "0::/\n", {"cpu.max": "50000 100000", "memory.max": str(8 * 2**20)})
    warn_of_limits(Resources.of(1, {"cpu": 0.5, "mem": "8MiB", "disk": "80GiB", "gpu": 8}), root)
    assert not caplog.records
    group = f"{root}/sys/fs/cgroup"
    warn_of_limits(
        Resources.of(1, {"cpu": 2, "cpus": "501m", "mem": "9MiB", "memory": "1GiB"}), root
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"this node offers cpu=2, but may use 0.5 (the CPU quota of its control group, {group})",
        "this node offers cpus=0.501, but may use 0.5 (the CPU quota of its control group, "
        f"{group})",
        f"this node offers mem=9MiB, but may use 8MiB (the limit of its control group, {group})",
        f"this node offers memory=1GiB, but may use 8MiB (the limit of its control group, {group})",
    ]


def test_a_worker_warns_of_an_offer_beyond_its_machine(caplog: pytest.LogCaptureFixture) -> None:
    spec({"parsync_resource": (f"mem={MEMORY + 1}", f"cpu={len(CPUS) + 1}")})
    assert (
        f"this node offers cpu={len(CPUS) + 1}, but may use {len(CPUS)} (its affinity)"
        in caplog.text
    )
    assert "this node offers mem=" in caplog.text


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs, to take one away")
def test_a_worker_with_a_slot_for_each_cpu_of_the_machine_is_warned_if_it_may_use_fewer_cpus(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine_cpus = os.cpu_count() or 1
    os.sched_setaffinity(0, CPUS[:1])
    try:
        warn_of_limits(Resources.of(1))
        warn_of_limits(Resources.of(machine_cpus + 1))
        assert not caplog.records, "more slots than the machine has CPUs are for tasks that wait"
        warn_of_limits(Resources.of(machine_cpus))
    finally:
        os.sched_setaffinity(0, CPUS)
    assert [record.getMessage() for record in caplog.records] == [
        f"this node offers {machine_cpus} slots, but may use 1 of the machine's {machine_cpus} "
        "CPUs (its affinity): "
        "--concurrency 1 fits"
    ]
