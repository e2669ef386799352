"""parsync-lab: benches, a simulator and a replay of traces, for the schedulers of parsync-redis.

parsync-redis does not import parsync-lab. The entry point `parsync_redis.commands` adds the lab's
commands to `parsync`.
"""

__version__ = "0.1.0"


class Stopped(Exception):
    """Ctrl-C or SIGTERM has ended the measurement."""
