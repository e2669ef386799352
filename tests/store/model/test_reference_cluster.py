"""Members, leader and the deal of nodes: the scripts and the reference store are the same."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from parsync_redis.model.booking import Booking
from parsync_redis.store import Call, Store
from parsync_redis.store.reference import MemoryStore
from tests.kit.whole_state import state_of_reference, state_of_server

SCHEDULERS = st.sampled_from(["s1", "s2", "s3"])


class Cluster(RuleBasedStateMachine):
    """Drives what the whole cluster shares on one server and in the reference."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        store.client.flushall()
        self.store = store
        self.commands = store.commands
        self.reference = MemoryStore(store.keys.cluster)

    def both(self, call: Call[Any]) -> None:
        """Run a call on both sides."""
        assert self.store.run(call) == self.reference.run(call), call.script.verb
        assert state_of_server(self.store) == state_of_reference(self.reference), call.script.verb

    @rule(
        me=SCHEDULERS,
        leader=st.booleans(),
        lost=st.booleans(),
        stay=st.sampled_from([True, True, False]),
        at_most=st.sampled_from([0, 1, 2]),
    )
    def renew_scheduler(self, me, leader, lost, stay, at_most):
        cluster = self.reference.cluster
        seen = cluster.leader.text() if leader and cluster.leader else ""
        still = next(
            (f"{name} {count}" for name, count in cluster.members.items() if lost and name != me),
            "",
        )
        stats = {"placed": 1} if stay else None
        self.both(self.commands.renew_scheduler(me, seen, still, stats, stay, at_most))

    @rule(
        name=st.sampled_from(["n1", "n2", "n3", "n4"]),
        labels=st.sampled_from(["", "zone:a", "zone:a gpu:b"]),
        slots=st.integers(0, 3),
        score=st.sampled_from([1.0, 2.5]),
        partitions=st.integers(1, 3),
    )
    def deal_node(self, name, labels, slots, score, partitions):
        self.both(self.commands.deal_node(name, partitions, labels, slots, score))

    @rule(nodes=st.lists(st.sampled_from(["n1", "n2"]), unique=True), since=st.integers(1, 9))
    def book(self, nodes, since):
        self.both(
            self.commands.book([Booking(node, "big slots=2", "a", since) for node in nodes], 60)
        )

    @rule(
        shares=st.dictionaries(
            st.sampled_from(["a", "a/-", "-"]), st.sampled_from([0.0, 1e-6, 2e-6]), min_size=1
        ),
        half_life_s=st.sampled_from([0.0, 31_536_000.0]),
        work=st.sampled_from([1.0, 0.25]),
    )
    def note_shares(self, shares, half_life_s, work):
        # so small a share and so long a half-life that the time of a run adds nothing that is kept
        rows = [(tenant, share, half_life_s, work) for tenant, share in shares.items()]
        self.both(self.commands.note_shares(rows, 60))

    @rule(settings=st.dictionaries(st.sampled_from(["partitions", "gap_ms"]), st.integers(1, 9)))
    def configure(self, settings):
        self.both(self.commands.configure(settings))


def test_the_scripts_of_the_cluster_behave_like_the_reference_store(any_store: Store):
    run_state_machine_as_test(lambda: Cluster(any_store), settings=settings(stateful_step_count=30))  # type: ignore[arg-type]
