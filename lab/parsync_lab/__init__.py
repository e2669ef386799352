"""parsync-lab: benches, the simulator and the replay of traces, with the schedulers of
parsync-redis.

parsync-redis does not import it. The entry point `parsync_redis.commands` adds its commands to
`parsync`.
"""

__version__ = "0.1.0"


class Stopped(Exception):
    """Ctrl-C or SIGTERM has ended the measurement."""
