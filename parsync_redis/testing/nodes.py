"""A node as tests declare it: a mapping of the node's offer."""

from collections.abc import Mapping
from typing import Any, Final

from ..errors import InvalidInput
from ..model.ids import shown
from ..model.needs import Resources
from ..model.taints import offered_taints

NODE_KEYS: Final = ("slots", "score", "labels", "resources", "taints", "queues")
DEFAULT_SLOTS: Final = 8


def check_node(node: object) -> dict[str, Any]:
    """Return a declared node with its default slots; raises InvalidInput."""
    if not isinstance(node, Mapping):
        raise InvalidInput(f"{shown(node)} is not a node: it must be a mapping, {{'slots': 2}}")
    for name in node:
        if name not in NODE_KEYS:
            raise InvalidInput(
                f"unknown word {shown(name)} of a node: known are {', '.join(NODE_KEYS)}"
            )
    return {"slots": DEFAULT_SLOTS, **node}


def offer_of(node: object) -> Resources:
    """Return what a declared node offers to a task; raises InvalidInput."""
    declared = check_node(node)
    taints = offered_taints(declared.get("taints") or ())
    return Resources.of(
        declared["slots"], declared.get("resources"), declared.get("labels"), taints
    )


def worker_options(node: object) -> dict[str, Any]:
    """Return the worker's options for a declared node, as its flags have them.

    Raises InvalidInput.
    """
    declared = check_node(node)
    offer_of(node)
    options: dict[str, Any] = {"parsync_slots": declared["slots"]}
    if "score" in declared:
        options["parsync_score"] = declared["score"]
    if labels := declared.get("labels"):
        words = []
        for name, values in labels.items():
            several = values if isinstance(values, (list, tuple)) else [values]
            words += [f"{name}={value}" for value in several]
        options["parsync_label"] = tuple(words)
    if resources := declared.get("resources"):
        options["parsync_resource"] = tuple(
            f"{name}={amount}" for name, amount in resources.items()
        )
    if taints := declared.get("taints"):
        options["parsync_taint"] = tuple(taints)
    if queues := declared.get("queues"):
        options["queues"] = list(queues)
    return options
