"""The commands of the lab, and their table, which `parsync --help` reads."""

from typing import Final

COMMANDS: Final = {
    "parsync_lab.commands.bench": {"bench": "Measure what parsync does and costs."},
    "parsync_lab.commands.simulate": {
        "simulate": "Run the paper's experiments with our own schedulers, in virtual time."
    },
    "parsync_lab.commands.replay": {
        "replay": "Replay the trace of a real cluster with our own schedulers."
    },
}
"""Commands by module: name and first sentence of the help."""
