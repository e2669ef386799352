"""The use of GPU models in a replay: how many GPUs pods asked for and held."""

from collections import Counter
from dataclasses import dataclass

from parsync_redis.model.amount import THOUSANDTHS

from .gpu_trace import GpuTrace
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class ModelUse:
    """The GPUs of a model.

    gpus: all of them.
    asked: by pods that accept no other model.
    held: at the end.
    held_by_others: the part of `held` whose pods accept other models too.
    """

    model: str
    gpus: int
    asked: float
    held: float
    held_by_others: float


def use_of_models(trace: GpuTrace, timeline: Timeline) -> list[ModelUse]:
    """Return the use of each model, the largest first. Pods that have ended hold nothing."""
    model_of = {node.name: node.model for node in trace.nodes}
    pods = {pod.name: pod for pod in trace.pods}
    gpus, asked_milli, held_milli, held_by_others = (Counter[str]() for _ in range(4))
    for node in trace.nodes:
        gpus[node.model] += node.gpus
    for pod in trace.pods:
        if len(pod.models) == 1:
            asked_milli[pod.models[0]] += pod.gpu_milli
    for place in timeline.places_held:
        model = model_of[place.node]
        pod = pods[place.task]
        held_milli[model] += pod.gpu_milli
        held_by_others[model] += pod.gpu_milli * (len(pod.models) != 1)
    return [
        ModelUse(
            model,
            count,
            *(milli[model] / THOUSANDTHS for milli in (asked_milli, held_milli, held_by_others)),
        )
        for model, count in sorted(gpus.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]
