"""A partition of the store in memory: nodes, leases, bits, amounts.

lua/verbs has the contract of each script.
"""

from .claiming import Claiming
from .nodes import Nodes


class Partition(Claiming, Nodes):
    """The nodes and leases of one partition, and the scripts on them."""
