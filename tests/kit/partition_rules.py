"""The scripts on one server and the reference side by side: how a call is compared, and the rules
of partitions.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from parsync_redis.model.allotment import AllotReply
from parsync_redis.model.capacity import FAILS, capacity_of, limits_slots, slots_given
from parsync_redis.model.claim import Claim
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.record import Record
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.store import Call, Store
from parsync_redis.store.reference import MemoryStore
from parsync_redis.store.reference.leases import amounts_of
from tests.kit.oracle.audit import audit
from tests.kit.whole_state import state_of_reference, state_of_server, told

IDS = st.sampled_from("abcd")
NODES = st.sampled_from(["n1", "n2"])
SCHEDULERS = st.sampled_from(["s1", "s2"])
PARTITIONS = st.sampled_from([0] * 7 + [1])
NEEDS = st.sampled_from(
    [
        {},
        {},
        {},
        {"slots": 2},
        {"resources": {"gpu": 1}, "strategy": "quality"},
        {"slots": 2, "resources": {"gpu": 2, "mem": 0}},
        {"require": {"zone": "a"}},
        {"require": {"zone": ["a", "b"], "rack": {"exists": False}}},
        {"require": {"zone": {"not": "a"}}},
        {"require": {"vram_gb": {">=": 24}}},
        {"resources": {"gpu": 0.5}},
        {"apart": "web"},
        {"apart": "web", "slots": 2, "resources": {"gpu": 0.5}},
        {"resources": {"gpu": "750m", "mem": 2.5}},
        {"slots": 2, "resources": {"gpu": 2, "gpu.mem": 8}},
        {"resources": {"gpu": 0.5, "gpu.mem": 4}},
        {"resources": {"gpu.mem": "2.5"}},
        {"slots": 9},
        {"slots": 9, "wait_for_capacity": True},
        {"priority": 9},
        {"max_starts": 1},
        {"tenant": "a"},
        {"tenant": "a/b", "slots": 2, "resources": {"gpu": 0.5}},
        {"limits": "x"},
        {"limits": "x,y:1*2", "tenant": "a"},
        {"limits": "z"},
        {"prefer": ["warm:m"]},
        {"prefer": ["warm", "pack"], "limits": "x", "tenant": "a"},
        {"prefer": ["pack"]},
        {"prefer": ["zone=a", {"rack": {"a": 0, "b": 2}}, "pack:gpu"], "strategy": "latency"},
        {"prefer": ["vram_gb>=24"], "resources": {"gpu": 0.5}, "tenant": "a", "limits": "x"},
    ]
)


def options_of(options: Mapping[str, Any], queue: str = "") -> TaskOptions:
    """Return the checked options of a draw of NEEDS."""
    accounts = {name: options[name] for name in ("tenant", "limits") if name in options}
    further = {name: value for name, value in options.items() if name not in accounts}
    return replace(TaskOptions.of(further, queue), **accounts)


CAPACITIES = st.fixed_dictionaries(
    {},
    optional={"slots": st.integers(0, 9).map(lambda n: n * 1000)}
    | {name: st.sampled_from([0, 500, 1000, 2000, 9000]) for name in ("gpu", "mem", "gpu.mem")},
)
"""What a source says that a node can give, in thousandths."""

OFFERS = st.sampled_from(
    [
        Resources.of(2),
        Resources.of(2),
        Resources.of(1),
        Resources.of(4, {"gpu": 2}),
        Resources.of(9, {"gpu": 3}),
        Resources.of(9, {"gpu": 1.5, "mem": "2.875"}),
        Resources.of(3, {"gpu": 1, "mem": 7}, {"zone": "a"}),
        Resources.of(3, {"gpu": 1}, {"zone": ["b", "c"], "vram_gb": "24.5"}),
        Resources.of(4, {"mem": 3}, None, (), {"gpu": [0, 1]}, {"gpu.mem": 8}),
        Resources.of(
            9, {}, None, (), {"gpu": [1, 3, 10]}, {"gpu.mem": "8.5", "gpu.mem@3": 16}, True
        ),
    ]
)
SLOTS = st.sampled_from([(0,), (0,), (1,), (0, 1), (2, 3), (1, 8)])
SLIPS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}] * 4 + [{"slots": (1,)}, {"node": "n2"}, {"inc": 2}, {"attempt": "2@1"}, {"since_ms": 1}]
)


def comparable(answer: Any) -> Any:
    """Return an answer without its times, which are of two clocks."""
    match answer:
        case Took():
            tasks = [task._replace(ready_ms=0) for task in answer.tasks]
            return replace(answer, now_ms=0, due_ms=0 if answer.due_ms else None, tasks=tasks)
        case Judged(version=version, verdicts=verdicts):
            return version, [(v.word, v.held if v.won else v.detail) for v in verdicts]
        case Snapshot(bits=bytes() as bits):
            return replace(answer, bits=bits.rstrip(b"\0"), left=dict(answer.left))
        case AllotReply():
            return answer._replace(now_ms=0)
        case [Record(), *_]:
            return told(answer)
    return answer


class PartitionRules(RuleBasedStateMachine):
    """Drives the scripts on one server and the reference; old places and attempts stay in use, as
    on a slow network.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        store.client.flushall()
        self.store = store
        self.reference = MemoryStore(store.keys.cluster, shards=store.keys.shards)
        self.calls = 0
        self.commands = store.commands
        # scheduler, task, attempt: every take ever, the newest last
        self.attempts: list[tuple[str, str, str]] = []
        self.places: list[Place] = []  # every place that was ever held, the newest last
        self.claims: list[Claim] = []  # theirs
        # of a scheduler, of a shard's index of kinds
        self.copies: dict[tuple[str, int], dict[str, list[str]]] = {}
        self.since: dict[tuple[str, int], str] = {}

    def both(self, call: Call[Any]) -> Any:
        """Run a call on the server and on the reference. The answers must be equal, and the states afterwards equal and sound."""
        both = [self.both_parts(part) for part in call.parts or (call,)]
        answer, expected = both[0]
        if call.parts:
            answer, expected = (call.read(list(side)) for side in zip(*both, strict=True))
        self.calls += 1
        verb = call.script.verb
        server = state_of_server(self.store)
        reference = state_of_reference(self.reference)
        assert comparable(answer) == comparable(expected), (
            verb,
            comparable(answer),
            comparable(expected),
        )
        wrong = [
            name for name in {**server, **reference} if server.get(name) != reference.get(name)
        ]
        assert not wrong, (verb, [(name, server.get(name), reference.get(name)) for name in wrong])
        if self.calls % 8 == 0:
            self.teardown()
        return answer

    def both_parts(self, call: Call[Any]) -> tuple[Any, Any]:
        """Run a call of a single shard on the server and on the reference, at the same time; return both answers."""
        queue = self.reference.queues[self.store.keys.shard_in(call.keys[0]) or 0]
        self.reference.now_ms = self.server_ms()
        version = queue.version
        answer = self.store.run(call)
        self.reference.now_ms = self.time_of(call, answer, version) or self.reference.now_ms
        return answer, self.reference.run(call)

    def server_ms(self) -> int:
        """Return the server's time."""
        seconds, microseconds = self.store.client.time()
        return seconds * 1000 + microseconds // 1000

    def time_of(self, call: Call[Any], answer: Any, version: int) -> int:
        """Return the server's time of a call if it can be in the state: in a lease, an epoch or a
        version; else 0.

        version: that of the queue before the call.
        """
        if isinstance(answer, Judged):
            return answer.now_ms
        at = re.search(r":p(\d)\}", call.keys[0])
        client: Any = self.store.client
        if not at:
            shard = self.store.keys.shard_in(call.keys[0]) or 0
            now = int(client.hget(self.store.keys.queue("meta", shard), "version") or 0)
            return now // 100 if now > version else 0
        return (
            int(client.hget(self.store.keys.partition(int(at[1]), "meta"), "epoch") or 0)
            if at
            else 0
        )

    def teardown(self) -> None:
        """Find equal states that are both wrong, but for what the scripts leave to the processes,
        which are not here.

        Here slips confirm places that have no lease, and slots are released that are used. Nobody
        keeps to the number of slots: the worker tells `start` how many tasks may run.
        """
        not_theirs = ("has no lease at its place", " run tasks")
        assert [
            fact for fact in audit(self.store) if not any(words in fact for words in not_theirs)
        ] == []

    def a_place(self, data: st.DataObject) -> Place:
        """Return a place of any time, mostly a late one, perhaps with a slip."""
        known = self.places or [Place("a", "1@1", 0, "n1", (0,), 1, 1)]
        place = known[-1 - data.draw(st.integers(0, len(known) - 1), "how late")]
        return replace(place, **data.draw(SLIPS, "slip"))

    def an_attempt(self, data: st.DataObject) -> tuple[str, str, str]:
        """Return a take of any time, mostly a late one."""
        known = self.attempts or [("s1", "a", "1@1")]
        return known[-1 - data.draw(st.integers(0, len(known) - 1), "how late")]

    def a_claim(self, id, attempt, p, name, slots, needs, behind=0) -> Claim:
        """Return a claim as a scheduler makes it that has read the nodes, `behind` changes of them
        ago.
        """
        partition = self.reference.partition(p)
        node = partition.nodes.get(name)
        inc, first = (node.inc, node.first) if node else (1, 0)
        amounts = parse_needs(needs).asked
        return Claim(id, attempt, p, name, slots, inc, amounts, first, partition.epoch - behind)

    def claim(self, claim: Claim, times: int = 1) -> None:
        """Commit a claim, perhaps twice in one call."""
        judged = self.both(self.commands.commit(claim.partition, [claim] * times))
        if judged.verdicts[0].word == "held":
            place = claim.won(judged.now_ms, judged.verdicts[0].held)
            self.check_capacity(place)
            self.places.append(place)
            self.claims.append(claim)

    def check_capacity(self, place: Place) -> None:
        """Check that a claim that has just won keeps its node within the node's capacity."""
        partition = self.reference.partition(place.partition)
        node = partition.nodes[place.node]
        if limits_slots(node.capacity):
            held_slots = sum(name == node.name for name, _ in partition.leases)
            assert held_slots <= slots_given(node.offer, node.capacity)
        assert all(node.amounts_left.get(name, 0) >= 0 for name, _ in amounts_of(place.asked))

    @rule(
        p=PARTITIONS,
        node=NODES,
        known=st.sampled_from([0, 0, 1, 7]),
        offer=OFFERS,
        room=st.sampled_from([0, 0, 3]),
        given_amounts=CAPACITIES,
    )
    def register_node(self, p, node, known, offer, room=0, given_amounts=None):
        capacity, _ = capacity_of(offer, given_amounts or {}) if not room else ("", [])
        self.both(self.commands.register_node(p, node, known, 1.5, offer.text, room, capacity))

    @rule(
        data=st.data(),
        p=PARTITIONS,
        node=NODES,
        slots=SLOTS,
        needs=NEEDS,
        behind=st.sampled_from([0, 0, 0, 1]),
    )
    def commit(self, data, p, node, slots, needs, behind):
        """Claim any slots; a scheduler that has read the nodes claims slots that there are."""
        _, id, attempt = self.an_attempt(data)
        text = Resources.needed(len(slots), needs.get("resources")).text
        claim = self.a_claim(id, attempt, p, node, slots, text, behind)
        if behind or self.is_there(claim):
            self.claim(claim, data.draw(st.sampled_from([1, 1, 2]), "times in one call"))

    @rule(data=st.data(), slots=st.sampled_from([None, None, (0,), (1, 0)]))
    def commit_again(self, data, slots):
        """Repeat a claim of any time, whatever has become of the node; or claim other slots by the
        same old copy.
        """
        if self.claims:
            claim = self.claims[-1 - data.draw(st.integers(0, len(self.claims) - 1), "how late")]
            other = claim._replace(slots=slots or claim.slots)
            stale = claim.epoch < self.reference.partition(claim.partition).epoch
            self.claim(other if stale or self.is_there(other) else claim)

    def is_there(self, claim: Claim) -> bool:
        """Return whether the node has the slots of a claim."""
        node = self.reference.partition(claim.partition).nodes.get(claim.node)
        return node is not None and max(claim.slots) < node.span

    @rule(data=st.data(), times=st.sampled_from([1, 1, 2]))
    def release(self, data, times):
        place = self.a_place(data)
        self.both(self.commands.release(place.partition, [place] * times))

    @rule(p=PARTITIONS, back=st.integers(0, 2), waiter=st.sampled_from(["", "s1", "s2"]))
    def read_partition(self, p, back, waiter):
        self.both(
            self.commands.read_partition(p, self.reference.partition(p).version - back, waiter)
        )

    @rule(p=PARTITIONS, node=NODES, inc=st.integers(1, 3))
    def renew(self, p, node, inc):
        self.both(self.commands.renew(p, node, inc))

    @rule(
        p=PARTITIONS,
        node=NODES,
        how=st.sampled_from(["still", "still", "moved", "list"]),
        limit=st.sampled_from([1, 9]),
    )
    def reclaim(self, p, node, how, limit):
        known = self.reference.partition(p).nodes.get(node)
        inc, moved = (known.inc, known.moved) if known else (1, 0)
        seen = {"still": moved, "moved": moved + 1, "list": None}[how]
        _, lost = self.both(self.commands.reclaim(p, node, inc, seen, limit))
        self.places += [lease.place for lease in lost]

    @rule(
        p=PARTITIONS,
        node=NODES,
        word=st.sampled_from(
            ["drain", "drain", "over", "over", "undrain", "suspect", "trust", "leaving"]
        ),
        inc=st.sampled_from([None, None, 1, 2]),
        terms=st.sampled_from(["", "deadline_s=5", "deadline_s=5", "deadline_s=7: why"]),
        why=st.sampled_from(["", "why"]),
    )
    def set_node(self, p, node, word, inc, terms, why):
        note = why if word == "suspect" else terms
        self.both(self.commands.set_node(p, node, word, inc, note))

    @rule(
        p=PARTITIONS,
        node=NODES,
        word=st.sampled_from(["until", "until", "over"]),
        at_ms=st.sampled_from(["0", "5000", "5000", "9000"]),
        is_own=st.booleans(),
    )
    def set_notice(self, p, node, word, at_ms, is_own):
        """Give a node a notice, as an operator or its process, withdraw it, or say it is over."""
        known = self.reference.partition(p).nodes.get(node)
        inc = known.inc if known and is_own and word == "until" else None
        note = f"{at_ms},own" if is_own and word == "over" else at_ms
        self.both(self.commands.set_node(p, node, word, inc, note))

    @rule(
        p=PARTITIONS, node=NODES, seats=st.integers(0, 3), inc=st.sampled_from([None, None, 1, 2])
    )
    def set_ahead(self, p, node, seats, inc):
        known = self.reference.partition(p).nodes.get(node)
        if known:
            self.both(
                self.commands.set_node(
                    p, node, "ahead", inc, str(min(seats, known.span - known.offer.slots))
                )
            )

    @rule(p=PARTITIONS, node=NODES, offer=OFFERS, inc=st.sampled_from([None, 1, 1, 2]))
    def set_offer(self, p, node, offer, inc):
        self.both(self.commands.set_node(p, node, "offer", inc, f"1.0 {offer.text}"))

    @rule(p=PARTITIONS, node=NODES, given_amounts=CAPACITIES, fails=st.booleans())
    def set_capacity(self, p, node, given_amounts, fails):
        """Tell the server what a node without waiting seats can give now."""
        known = self.reference.partition(p).nodes.get(node)
        if known and not known.has_waiting_seats:
            capacity, _ = capacity_of(known.offer, given_amounts)
            words = f"capacity={capacity}{FAILS * fails} " if capacity or fails else ""
            note = f"{known.score} {words}{known.offer.text}"
            self.both(self.commands.set_node(p, node, "offer", known.inc, note))

    @rule(data=st.data(), read=st.booleans())
    def ring(self, data, read):
        place = self.a_place(data)
        if read:
            self.store.client.delete(self.store.keys.inbox(place.partition, place.node))
            if node := self.reference.partition(place.partition).nodes.get(place.node):
                node.inbox.clear()
        self.both(self.commands.ring(place))

    @rule(p=PARTITIONS, node=NODES, how=st.sampled_from(["", "left"]))
    def forget_node(self, p, node, how):
        known = self.reference.partition(p).nodes.get(node)
        self.both(self.commands.forget_node(p, node, known.inc if known else 1, how))
