"""The reader of traces of GPU nodes and pods, as in Alibaba's trace of 2023 (openb).

A node offers its CPU, its memory and its GPUs as devices. A pod needs amounts of CPU and memory,
and a share of one GPU or whole GPUs; `gpu_spec` names the models that it accepts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parsync_redis.errors import InvalidInput
from parsync_redis.model.amount import THOUSANDTHS
from parsync_redis.model.limits import MAX_SLOTS
from parsync_redis.model.needs import Resources

from .records import CsvRow, read_records

NODE_FILES: Final = "openb_node_list*.csv*"
POD_FILES: Final = "openb_pod_list*.csv*"
NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "creation_time",
    "deletion_time",
)
MOST_GPUS: Final = 32
"""The maximum number of GPUs of a node: with other amounts and labels it has 64 words."""


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str

    def offer(self, slots: int) -> Resources:
        """Return what the node offers when it is empty."""
        amounts = {"cpu": f"{self.cpu_milli}m", "mem": f"{self.memory_mib}MiB"}
        labels = {"gpu_model": self.model} if self.model else {}
        return Resources.of(
            slots, amounts, labels, devices={"gpu": range(self.gpus)} if self.gpus else None
        )


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the trace, created at `at_s`; it runs for `runs_s`.

    gpu_milli: of all its GPUs together.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    models: tuple[str, ...]
    at_s: float
    runs_s: float

    @property
    def needs(self) -> Resources:
        """Return what the pod needs: one slot and its amounts, on a node of an accepted model."""
        amounts = {"cpu": f"{self.cpu_milli}m", "mem": f"{self.memory_mib}MiB"}
        gpu = {"gpu": f"{self.gpu_milli}m"} if self.gpu_milli else {}
        return Resources.needed(
            1, {**amounts, **gpu}, {"gpu_model": list(self.models)} if self.models else {}
        )


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """The nodes of a trace, and its pods in the order of their creation.

    limit: the maximum number of pods.
    """

    nodes: Sequence[GpuNode]
    pods: Sequence[Pod]
    limit: int | None = None

    @property
    def gpu_milli(self) -> int:
        """The sum of all GPUs of the nodes, in thousandths."""
        return THOUSANDTHS * sum(node.gpus for node in self.nodes)

    def offers(self) -> dict[str, Resources]:
        """Return {node: offer}, with so many slots that no pod lacks a slot."""
        smallest = {
            have: _smallest([pod for pod in self.pods if bool(pod.gpu_milli) is have])
            for have in (True, False)
        }
        return {
            node.name: node.offer(_enough_slots(node, *smallest[bool(node.gpus)]))
            for node in self.nodes
        }


def _smallest(pods: Sequence[Pod]) -> tuple[int, tuple[int, int, int]]:
    """Return the number of pods, and the smallest need of each resource among them."""
    needs = [(pod.cpu_milli, pod.memory_mib, pod.gpu_milli) for pod in pods] or [(0, 0, 0)]
    cpu, memory, gpu = map(min, zip(*needs, strict=True))
    return len(pods), (cpu, memory, gpu)


def _enough_slots(node: GpuNode, pods: int, smallest: tuple[int, int, int]) -> int:
    """Return the maximum number of these pods that the node could hold at once.

    Only pods with GPUs go to a node with GPUs.
    """
    has = (node.cpu_milli, node.memory_mib, node.gpus * THOUSANDTHS)
    bounds = [amount // least for amount, least in zip(has, smallest, strict=True) if least]
    return max(1, min(pods, MAX_SLOTS, *bounds))


def read_gpu_trace(folder: Path, limit: int | None = None) -> GpuTrace:
    """Read the nodes and the first `limit` pods of a folder; raises InvalidInput."""
    if not folder.is_dir():
        fault = "is not a folder" if folder.exists() else "does not exist"
        raise InvalidInput(
            f"folder {folder} {fault}: it must have one file {NODE_FILES} and one file {POD_FILES}"
        )
    nodes = read_records(_only(folder, NODE_FILES), NODE_COLUMNS, _node)
    pods = read_records(_only(folder, POD_FILES), POD_COLUMNS, _pod)
    pods.sort(key=lambda pod: pod.at_s)
    return GpuTrace(nodes, pods[:limit], limit)


def _only(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        content = (
            f"has {len(files)}: {', '.join(path.name for path in files[:4])}"
            if files
            else "has none"
        )
        raise InvalidInput(
            f"folder {folder} must have one file {pattern}, .csv or .csv.gz; it {content}"
        )
    return files[0]


def _node(row: CsvRow) -> GpuNode:
    gpus = row.whole("gpu", MOST_GPUS, f"a whole number from 0 to {MOST_GPUS}")
    node = GpuNode(
        row.named("sn"), row.whole("cpu_milli"), row.whole("memory_mib"), gpus, row.text("model")
    )
    row.check(lambda: node.offer(1))
    return node


def _pod(row: CsvRow) -> Pod:
    count = row.whole("num_gpu", MOST_GPUS, f"a whole number from 0 to {MOST_GPUS}")
    share = row.whole("gpu_milli", THOUSANDTHS, "a whole number from 0 to 1000") if count else 0
    if (count and not share) or (count > 1 and share < THOUSANDTHS):
        raise row.error(
            f"num_gpu {count} with gpu_milli {share} is not valid: it must be a share of 1 to 1000 "
            "of one GPU, or "
            "several GPUs of 1000 each"
        )
    models = tuple(dict.fromkeys(model for model in row.text("gpu_spec").split("|") if model))
    at_s = row.seconds("creation_time")
    end_s = row.seconds("deletion_time")
    amounts = row.whole("cpu_milli"), row.whole("memory_mib"), count * share
    pod = Pod(row.named("name"), *amounts, models, at_s, max(0.0, end_s - at_s))
    row.check(lambda: pod.needs)
    return pod
