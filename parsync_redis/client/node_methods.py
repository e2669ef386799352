"""The methods of ParsyncClient about nodes: which there are, drains and notices."""

from datetime import datetime

from ..errors import InvalidInput
from ..model.human import read_future
from ..model.ids import check_name, shown
from ..model.node import drain_terms, leaving_time
from ..model.views import NodeView
from ..store.reads.cancel import server_ms
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.views import find_node, read_node_views
from ..store.store import Store
from .requests import Requests


class NodeMethods:
    """The requests of a client about nodes."""

    requests: Requests
    store: Store

    def nodes(self) -> list[NodeView]:
        """Return every node, sorted by name."""
        return self.requests.do(lambda: read_node_views(self.store))

    def drain(
        self,
        node: str,
        deadline_s: float | None = None,
        reason: str = "",
        *,
        leaves_at: str | datetime | None = None,
    ) -> NodeView:
        """Drain a node: it gets no new claims, also after a restart, and its runs go on.

        deadline_s: after so many seconds, counted by the leader, the remaining runs are ended and
            placed elsewhere; these starts do not count.
        reason: a line for people. A second call replaces the terms of the first.
        leaves_at: when the node leaves: "10m" from now by the server's clock, "14:30" by the local
            clock, or a date and time. Until then the node gets the tasks that end before. What
            still runs shortly before is ended and placed elsewhere; these starts do not count.
            Stands without deadline_s and reason.

        Raises InvalidInput.
        """
        if leaves_at is None:
            return self._set_node(node, "drain", drain_terms(deadline_s, reason))
        if deadline_s is not None or reason:
            raise InvalidInput(
                "the time at which a node leaves stands alone: such a drain has no deadline and no "
                "reason"
            )
        now_ms = self.requests.do(lambda: server_ms(self.store))
        text = leaves_at.isoformat() if isinstance(leaves_at, datetime) else leaves_at
        leaves_ms = read_future("the time at which the node leaves,", text, now_ms)
        return self._set_node(node, "until", leaving_time(leaves_ms, now_ms))

    def undrain(self, node: str) -> NodeView:
        """Undrain a drained or suspect node, or one that leaves, so that it gets claims again.

        Raises InvalidInput.
        """
        return self._set_node(node, "undrain")

    def _set_node(self, name: str, word: str, note: str = "") -> NodeView:
        check_name("node name", name)
        commands = self.store.commands
        partition = self.requests.do(lambda: find_node(self.store, name))
        reply = ["gone"]
        if partition is not None:
            reply = self.requests.do(
                lambda: self.store.run(commands.set_node(partition, name, word, None, note))
            )
        if reply[0] == "gone":
            names = [node.name for node in self.nodes()]
            missing = None if names else self.requests.do(lambda: look_for_cluster(self.store))
            there_are = (
                f"there are {', '.join(names[:20])}"
                if names
                else str(missing or "no node is registered")
            )
            raise InvalidInput(f"no node {shown(name)}: {there_are}")
        return next(node for node in self.nodes() if node.name == name)
