"""Blocked groups: those that a partition may hold are found, and none that fits is left out."""

from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.kind import Kind, KindLine
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Took
from parsync_redis.scheduler.core.queue import GROUPS_AT_ONCE, QueueCopy
from parsync_redis.scheduler.core.view import View
from tests.kit.core_rig import bitmap

AMOUNTS = st.dictionaries(st.sampled_from(["gpu", "mem", "disk"]), st.integers(0, 3), max_size=3)
LABELS = st.dictionaries(
    st.sampled_from(["zone", "model"]), st.sampled_from(["a", "b"]), max_size=2
)
NEEDS = st.builds(Resources.of, st.integers(1, 3), AMOUNTS, LABELS)


@given(st.lists(NEEDS, max_size=80), st.lists(st.tuples(NEEDS, st.integers(0, 3)), max_size=4))
def test_none_that_fits_is_left_out(
    needs: list[Resources], nodes: list[tuple[Resources, int]]
) -> None:
    view = View(2)
    placed = []
    first = 0
    left = {}
    for number, (offer, busy) in enumerate(nodes):
        # name, state, incarnation, drain, first bit, slots, score, offer
        placed.append(Node(f"n{number}", "up", 1, 0, first, 3, 1.0, offer))
        left[f"n{number}"] = " ".join(
            f"{name}={max(0, amount - busy)}" for name, amount in offer.amounts
        )
        first += 3
    view.partitions[1].set_nodes(placed, 1)
    queue = QueueCopy(view)
    changes = [
        (Kind("work", some.text).text, str(KindLine(1, number, number)))
        for number, some in enumerate(needs)
    ]
    queue.update(Took("1", 0, changes=changes))
    assert queue.any_open == bool(needs), "they were never compared with the partitions"
    for waiting in queue.open_kinds([], []):
        queue.block(waiting.group)  # as a placer does that finds no seat
    assert not queue.any_open, "there is nothing free"
    view.partitions[1].set_free(bitmap(first), left, 1)
    for _ in range(1 + len(needs) // GROUPS_AT_ONCE):
        queue.open_kinds([0, 1], [])
    groups = {waiting.group.needs.text: waiting.group for waiting in queue.kinds[0].values()}
    fits = {
        text for text, group in groups.items() if len(view.partitions[1].seats(group.needs).leads)
    }
    found = {text for text, group in groups.items() if not group.blocked}
    assert fits <= found
    assert len(queue.blocked) == len(groups) - len(found)
    for text, group in groups.items():
        exact = not (group.needs.amounts or group.needs.labels) or len(placed) == 1
        if exact and text not in fits:
            assert text not in found, "with one node, or no amounts, it is exact"
