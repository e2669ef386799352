"""Read one node for people, without the other partitions."""

from ..model.views import NodeView
from .live_nodes import LiveNode, live_nodes
from .store import Store
from .views import find_node, reads_of, view_partition


def read_node(store: Store, name: str) -> tuple[LiveNode, NodeView] | None:
    """Return a node, or None if there is none of that name. Raises ServerUnreachable."""
    number = find_node(store, name)
    if number is None:
        return None
    meta, *rows = store.pipe(reads_of(store, number))
    live = {state.node.name: state for state in live_nodes(number, *rows)}
    views = {view.name: view for view in view_partition(store, number, meta, *rows)[1]}
    return (live[name], views[name]) if name in live else None
