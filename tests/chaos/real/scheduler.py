"""`parsync scheduler` with its calls recorded: `python -m tests.chaos.real.scheduler --name NAME
...`.
"""

import sys

from parsync_redis.cli import main

from .recorder import watch_this_process

if __name__ == "__main__":
    watch_this_process("scheduler")
    sys.argv = ["parsync", "scheduler", *sys.argv[1:]]
    main()
