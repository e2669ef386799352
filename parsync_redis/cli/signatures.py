"""`python -m parsync_redis.cli.signatures APP`: the app's tasks and the arguments that each must
have, as JSON.

A process of its own, because an app's modules may do anything when they are imported.
"""

import inspect
import json
import sys
from typing import Any

from celery.app.utils import find_app


def required_of(function: Any) -> list[str]:
    """Return the names of the positional arguments that a function must have."""
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in found if one.default is one.empty and one.kind in kinds]


def main(name: str) -> None:
    """Print the tasks of an app that are not Celery's own."""
    app = find_app(name)
    app.loader.import_default_modules()
    found = {
        task.name: required_of(task.run)
        for task in app.tasks.values()
        if not task.name.startswith("celery.")
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
