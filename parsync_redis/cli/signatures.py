"""`python -m parsync_redis.cli.signatures APP`: the required arguments of an app's tasks, as JSON.

This runs in a process of its own, because an app's modules may do anything on import.
"""

import inspect
import json
import sys
from typing import Any

from celery.app.utils import find_app


def required_of(function: Any) -> list[str]:
    """Return the names of the positional arguments of a function that have no default."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in kinds
    ]


def main(name: str) -> None:
    """Print {task name: required arguments} of an app, without Celery's own tasks."""
    app = find_app(name)
    app.loader.import_default_modules()
    arguments = {
        task.name: required_of(task.run)
        for task in app.tasks.values()
        if not task.name.startswith("celery.")
    }
    json.dump(arguments, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
