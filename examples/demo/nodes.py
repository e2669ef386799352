"""The demo's four nodes: scores, labels, slots and pools differ, as in a fleet of machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One Celery worker of the demo; `score` is on a scale of our own, larger is better."""

    name: str
    slots: int
    score: float
    labels: Mapping[str, str]
    pool: str


DEMO_NODES: Final = (
    DemoNode("swift", 4, 9.5, {"zone": "a", "screen": "yes"}, "prefork"),
    DemoNode("steady", 3, 6.0, {"zone": "b", "screen": "no"}, "prefork"),
    DemoNode("desk", 2, 4.0, {"zone": "b", "screen": "yes"}, "threads"),
    DemoNode("spare", 1, 1.0, {"zone": "a", "screen": "yes"}, "solo"),
)

DEMO_SLOTS: Final = sum(node.slots for node in DEMO_NODES)

_GRAPHICAL: Final = ("idlelib/", "tkinter/", "turtledemo/", "turtle.py")


def options_of(module: str) -> dict[str, object]:
    """Return the parsync options of a module's task: modules that draw windows need a screen."""
    return {"require": {"screen": "yes"}} if module.startswith(_GRAPHICAL) else {}
