"""The errors that parsync raises, one tree.

    ParsyncError
    ├── InvalidInput(ValueError)      a wrong argument or setting: its message says what is right
    │   ├── UnknownTask               no node knows a task of that name
    │   ├── UnknownLimit              the policy has no limit of that name
    │   └── Infeasible                no registered node could ever hold the task
    ├── ServerUnfit                   a server that parsync must not run on: too old, evicts keys
    │   ├── AccessDenied              the server refuses the login, or the login may not do this
    │   ├── ServerFull                its memory is full: nothing was done
    │   ├── ServerReadOnly            it takes no writes now: nothing was done
    │   └── ServerUnreachable         no server answers there, or it does not serve now
    ├── ClusterMismatch               the cluster runs with other settings than were asked for
    └── BrokenContract                a script was called wrongly: a bug, please report
        └── DamagedState              a key or record that no script writes; the message names it

Lost races are not errors: they are values in replies.
"""


class ParsyncError(Exception):
    """Any error of parsync."""


class InvalidInput(ParsyncError, ValueError):
    """A wrong argument or setting; nothing was done."""


class UnknownTask(InvalidInput):
    """No registered node knows a task of that name."""


class UnknownLimit(InvalidInput):
    """The policy has no limit of that name."""


class Infeasible(InvalidInput):
    """No registered node could ever hold the task, even if it were empty."""


class ServerUnfit(ParsyncError):
    """The server is too old, evicts keys, or is not what its address says."""


class AccessDenied(ServerUnfit):
    """The server refuses the login, or the login may not do what was asked; nothing was done."""


class ServerFull(ServerUnfit):
    """The server's memory is full, and the request needs more; nothing was done."""


class ServerReadOnly(ServerUnfit):
    """The server takes no writes; nothing was done.

    The server is a replica, or its disk or its replicas fail.
    """


class ServerUnreachable(ServerUnfit):
    """No server at that address answers or serves now.

    The last request may have been executed, or not.
    """


class ClusterMismatch(ParsyncError):
    """The running cluster has other settings than were asked for."""


class BrokenContract(ParsyncError):
    """A script refused its arguments, or met a broken record."""


class DamagedState(BrokenContract):
    """A key or a record has a value that no script writes; nothing was done."""
