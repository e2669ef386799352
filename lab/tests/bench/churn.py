"""Measure what nodes that come and go cost the leader, the server and `parsync serve`, through the
verbs of agents.

    python -m lab.tests.bench.churn [PODS]

A server has NODES quiet nodes. Then PODS more (1000) register and leave in order, one after
another, with other names, and a leader does its passes. It prints the nodes that are down, and the
processor time of a pass of the leader, of a reading by `parsync serve`, and of the server for both,
before and after. There is no worker.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.serve.survey import read_survey
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.views import ViewReader
from parsync_redis.store.server.embedded import EmbeddedServer

NODES: Final = 50
PARTITIONS: Final = 8
LEASE_S: Final = 10.0
POD_S: Final = 1.5
"""The time from one pod to the next, as the leader's clock tells it."""
ROUNDS: Final = 100
OFFER: Final = "slots=4 mem=4096 celery.queue:celery"


class Churn:
    """A cluster whose nodes are only verbs, and a leader with a clock of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_s = 0.0
        self.janitor = Janitor(store, PARTITIONS, LEASE_S)
        self.reader = ViewReader()
        self.quiet = [self.come(f"quiet{i}") for i in range(NODES)]

    def come(self, name: str) -> tuple[int, str, int]:
        """Register a node as its agent does."""
        commands = self.store.commands
        run = self.store.run
        p = run(commands.deal_node(name, PARTITIONS, "celery.queue:celery", 4, 1.0))
        run(commands.offer(name, OFFER))
        return p, name, int(run(commands.register_node(p, name, 0, 1.0, OFFER))[0])

    def leave(self, p: int, name: str, inc: int) -> None:
        """Leave in order, as an agent does."""
        commands = self.store.commands
        run = self.store.run
        run(commands.set_node(p, name, "leaving", inc))
        run(commands.reclaim(p, name, inc, int(run(commands.renew(p, name, inc))[1])))
        run(commands.forget_node(p, name, inc, "left"))

    def work(self) -> None:
        """Do a pass of the leader."""
        self.janitor.work(lambda: self.now_s, {})

    def step(self, seconds: float) -> None:
        """Let the quiet nodes renew, and some time pass for the leader, with as many passes as it
        would do.
        """
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            for node in self.quiet:
                self.store.run(self.store.commands.renew(*node))
            self.work()
            self.now_s += LEASE_S / 4

    def cost(self, what: Callable[[], object]) -> tuple[float, float]:
        """Return the processor time of ROUNDS calls, in ms a call: of this process, and of the
        server.
        """
        for _ in range(5):
            what()
        client: Any = self.store.client
        before = client.info("cpu")
        began_s = time.process_time()
        for _ in range(ROUNDS):
            what()
        spent_s = time.process_time() - began_s
        after = client.info("cpu")
        used = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
        return 1000 * spent_s / ROUNDS, 1000 * used / ROUNDS

    def tell(self, when: str) -> None:
        """Print the nodes by state, and what a pass and a reading cost."""
        states = Counter(
            node.state for p in range(PARTITIONS) for node in self.store.nodes(p).values()
        )
        leader, by_leader = self.cost(self.work)
        serve, by_serve = self.cost(lambda: read_survey(self.store, self.reader))
        print(
            f"{when}: {dict(states)}, "
            f"{self.store.read('hlen', self.store.keys.queue('shapes', 0))} offers; a pass "
            f"{leader:.2f} ms, of the server {by_leader:.2f}; a reading {serve:.2f} ms, of the "
            f"server {by_serve:.2f}"
        )


def main(pods: int) -> None:
    """Measure before and after so many pods."""
    with EmbeddedServer() as server:
        store = Store.from_url(server.url, "churn")
        join_cluster(
            store,
            Settings.load(url=server.url, cluster="churn", partitions=PARTITIONS),
            create=True,
        )
        churn = Churn(store)
        churn.step(4 * LEASE_S)
        churn.tell("quiet")
        for pod in range(pods):
            churn.leave(*churn.come(f"pod{pod}"))
            if pod % 10 == 9:
                churn.step(10 * POD_S)
        churn.tell(f"after {pods} pods")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
