"""The options that Parsync adds to an app's `celery worker`."""

from __future__ import annotations

from typing import Any, Final

import click
from celery import Celery

# Any: click's own arguments
WORKER_OPTIONS: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (
        ("--parsync",),
        {"is_flag": True, "default": None, "help": "Be a node of the cluster, with all defaults."},
    ),
    (
        ("--parsync-only",),
        {"is_flag": True, "default": None, "help": "Be a node that runs placed tasks only."},
    ),
    (
        ("--parsync-node",),
        {
            "metavar": "NAME",
            "help": "Be a node of that name; the default is the worker's own name.",
        },
    ),
    (
        ("--parsync-slots",),
        {"type": int, "help": "Slots of the node; the default is the worker's concurrency."},
    ),
    (
        ("--parsync-score",),
        {"type": float, "help": "How good the node is, on a scale of your own; default 1."},
    ),
    (
        ("--parsync-label",),
        {"multiple": True, "metavar": "NAME=VALUE", "help": "A label of the node; repeatable."},
    ),
    (
        ("--parsync-resource",),
        {"multiple": True, "metavar": "NAME=AMOUNT", "help": "An amount it has, mem=64GiB."},
    ),
    (
        ("--parsync-taint",),
        {"multiple": True, "metavar": "NAME", "help": "Only tasks that tolerate it run here."},
    ),
    (
        ("--parsync-device",),
        {"multiple": True, "metavar": "KIND=INDEXES", "help": "Devices: gpu=0,1 or gpu=0-7; none."},
    ),
    (
        ("--parsync-device-resource",),
        {
            "multiple": True,
            "metavar": "KIND.NAME=AMOUNT",
            "help": "Of each device: gpu.mem=24GiB, or gpu.mem@0=24GiB.",
        },
    ),
    (
        ("--parsync-device-variable",),
        {
            "multiple": True,
            "metavar": "KIND=VARIABLE",
            "help": "Variable for the runs: gpu=ROCR_VISIBLE_DEVICES.",
        },
    ),
    (
        ("--parsync-shared-devices",),
        {
            "is_flag": True,
            "default": None,
            "help": "Also take tasks that ask for none of the devices.",
        },
    ),
    (
        ("--parsync-notice",),
        {
            "metavar": "SOURCE",
            "help": "Where it learns that it leaves: aws, gcp, azure, a file, a URL or "
            "module:function.",
        },
    ),
    (
        ("--parsync-transient",),
        {
            "is_flag": True,
            "default": None,
            "help": "It may leave with a notice of seconds: no task with interruptible=False "
            "runs here.",
        },
    ),
    (
        ("--parsync-capacity",),
        {
            "metavar": "SOURCE",
            "help": "Where it asks what it can give now: a file, a URL, cgroup or module:function.",
        },
    ),
    (
        ("--parsync-shrink-after",),
        {
            "type": float,
            "metavar": "SECONDS",
            "help": "Recall runs beyond its capacity after so long; default: never.",
        },
    ),
    (
        ("--parsync-with-scheduler",),
        {"is_flag": True, "default": None, "help": "Run a scheduler beside the worker."},
    ),
)


def add_worker_options(app: Celery) -> None:
    """Add the options to an app's `celery worker`."""
    for names, options in WORKER_OPTIONS:
        app.user_options["worker"].add(click.Option(names, **options))
