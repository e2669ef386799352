"""The steps of a schedule: processes at work, the customer, and what goes wrong."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from parsync_redis.model.needs import Resources, parse_resources
from parsync_redis.model.node import drain_terms
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.store.reads.tasks import GENERATIONS
from parsync_redis.worker.node.look_ahead import RECENT_RUNS

from .processes import LEASE_S, AgentProcess
from .state import State, read_state
from .wire import RETENTION_S

if TYPE_CHECKING:
    from .schedule import Schedule, Step
    from .world import Process, World

NODES = {
    "n1": ("slots=2 gpu=1 mem=5 zone:a", 2.0),
    "n2": ("slots=1 mem=4 zone:b", 1.0),
    "n3": ("slots=2 mem=4", 1.0),
}
NEEDS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"slots": 2},
    {"resources": {"mem": 3}},
    {"resources": {"gpu": 1}},
    {"require": {"zone": "a"}},
)
FAR_AHEAD_MS = 9_000_000_000_000
OUTCOMES = ("succeeded",) * 6 + ("failed", "again", "again", "lost")


class Player:
    """Carries out steps; one method a verb."""

    def __init__(self, schedule: Schedule, world: World) -> None:
        self.schedule = schedule
        self.world = world
        self.ghost = world.ghost

    def play(self, step: Step) -> None:
        """Carry out a step with a random generator of its own."""
        world = self.world
        before = self.world.rng
        world.trace(f"{step} at {world.clock.now_s:.2f} s")
        world.rng = Random(step.seed)
        world.pass_time(world.rng.uniform(0, 2) * self.schedule.pace_s)
        getattr(self, step.verb)(world.rng)
        world.rng = before

    # -- processes at work -------------------------------------------------------------------------

    def turn(self, rng: Random) -> None:
        if self.world.schedulers:
            scheduler = rng.choice(self.world.schedulers)
            for _ in range(rng.randint(1, 4)):
                self.world.act(scheduler, "loop", scheduler.turn)

    def beat(self, rng: Random) -> None:
        if self.world.schedulers:
            scheduler = rng.choice(self.world.schedulers)
            self.world.act(scheduler, "member", scheduler.beat)

    def tick(self, rng: Random) -> None:
        for scheduler in self.world.schedulers:
            if scheduler.leads:
                self.world.act(scheduler, "member", scheduler.tick)

    def _agent(self, rng: Random) -> AgentProcess | None:
        return rng.choice(self.world.agents) if self.world.agents else None

    def _awake(self, rng: Random) -> list[AgentProcess]:
        """Return the agents that are awake, in some order."""
        awake = [agent for agent in self.world.agents if agent.awake_at <= self.world.step]
        return rng.sample(awake, len(awake))

    def renew(self, rng: Random) -> None:
        if agent := self._agent(rng):
            self.world.act(agent, "pass", agent.renew)

    def still(self, rng: Random) -> None:
        """Let a worker stand still, so that its guard gives back what has not begun."""
        if agent := self._agent(rng):
            self.world.act(agent, "guard", agent.keep_alone)

    def bell(self, rng: Random) -> None:
        for agent in self._awake(rng):
            if (message := self.world.doorbell(agent)) is not None:
                self.world.act(
                    agent,
                    "bell",
                    lambda agent=agent, message=message: agent.answer(message),  # type: ignore[misc]
                )
                break

    def end(self, rng: Random) -> None:
        for agent in self._awake(rng):
            killed = {"SIGKILL"} if self.world.dares(self.world.dice.odds["linger"]) else set()
            if going := [run for run in agent.agent.node.runs.going() if run.ending not in killed]:
                run = rng.choice(going)
                signalled = {"": rng.choice(OUTCOMES), "SIGKILL": "lost", "recalled": "lost"}.get(
                    run.ending, "cancelled"
                )
                agent.end(run, signalled if rng.random() < 0.9 else "succeeded")
                break

    def home(self, rng: Random) -> None:
        for agent in self._awake(rng):
            if agent.something_to_bring:
                self.world.act(agent, "home", agent.bring_home)
                break

    def ahead(self, rng: Random) -> None:
        """Let a node's tasks be short, or one task be long, and let the node look after its waiting seats."""
        if agent := self._agent(rng):
            for _ in range(rng.choice((0, 0, RECENT_RUNS))):
                agent.agent.node.ahead.ran("work", rng.choice((0.001, 0.02)))
            if rng.random() < 0.1:
                agent.agent.node.ahead.late()
            self.world.act(agent, "seats", agent.keep)

    # -- the customer ------------------------------------------------------------------------------

    def submit(self, rng: Random) -> None:
        self._submit(
            rng, [f"t{rng.randrange(self.schedule.tasks)}" for _ in range(rng.randint(1, 3))]
        )

    def _submission(
        self, rng: Random, id: str, after: str = "", publication: str = ""
    ) -> Submission:
        options = TaskOptions.of(
            {**rng.choice(self.schedule.needs), "wait_for_capacity": rng.random() < 0.7}
        )
        delay_ms = rng.choice((None, None, None, 500, 5000))
        expiry_ms = (
            rng.choice((300, 2000, 10_000)) if rng.random() < self.schedule.odds["expiry"] else None
        )
        return Submission(id, "work", b"message", options, delay_ms, after, expiry_ms, publication)

    def _submit(self, rng: Random, ids: list[str], publish: bool = False) -> None:
        store = self.world.customer.store
        publications = [f"p{rng.getrandbits(30)}" if publish else "" for _ in ids]
        ids = list(dict.fromkeys(ids))
        tasks = [
            self._submission(rng, id, publication=name)
            for id, name in zip(ids, publications[: len(ids)], strict=True)
        ]

        def send() -> None:
            words = store.run(store.commands.submit(tasks))
            for task, word in zip(tasks, words, strict=True):
                if task.id in self.ghost.tasks and word in ("submitted", "exists"):
                    self.ghost.tasks[task.id].acknowledged = True

        self.world.act(self.world.customer, "submit", send)

    def publish(self, rng: Random) -> None:
        """Publish an id, perhaps anew: it gets a successor if it runs, and a new life if it has
        ended.
        """
        self._submit(rng, [f"t{rng.randrange(self.schedule.tasks)}"], publish=True)

    def successor(self, rng: Random) -> None:
        """Let a function submit what its id does next, as a retry does."""
        for agent in self._awake(rng):
            if going := agent.agent.node.runs.going():
                place = rng.choice(going).place
                if rng.random() < 0.4:
                    self._submit(rng, [place.task], publish=True)
                call = agent.task.commands.submit(
                    [self._submission(rng, place.task, after=place.attempt)]
                )
                self.world.act(agent, "task", lambda agent=agent, call=call: agent.task.run(call))  # type: ignore[misc]
                break

    def cancel(self, rng: Random) -> None:
        store = self.world.customer.store
        id = f"t{rng.randrange(self.schedule.tasks)}"
        call = store.commands.cancel([id], how=rng.choice(("SIGTERM", "SIGKILL", "after")))
        self.world.act(self.world.customer, "cancel", lambda: store.run(call))

    def purge(self, rng: Random) -> None:
        """Forget a final task, as its retention does; its id may be submitted again, and mostly is
        at once.
        """
        if final := [id for id, task in self.ghost.tasks.items() if task.final]:
            id = rng.choice(final)
            self.world.trace("purged", id)
            keys = self.world.primaries.keys
            for kind in ("tasks", "messages", *GENERATIONS):
                self.world.client.hdel(keys.in_shard_of(kind, id), id)
            self.world.client.zrem(keys.in_shard_of("dead", id), id)
            self.world.client.delete(keys.extra(id))
            del self.ghost.tasks[id]
            if rng.random() < 0.7:
                self._submit(rng, [id])

    def drain(self, rng: Random) -> None:
        store = self.world.customer.store
        node = rng.choice(self.schedule.nodes)
        p = next(
            (agent.agent.node.partition for agent in self.world.agents if agent.node == node), -1
        )
        if p >= 0:
            words = rng.choice(
                (
                    ("drain",),
                    ("undrain",),
                    ("drain", "over"),
                    ("drain", "over", "undrain", "drain"),
                    ("until",),
                    ("until", "over", "undrain"),
                )
            )
            for word in words:
                # if its deadline is over, the leader says so, and the node hears it
                if word == "over":
                    for process in [
                        *self.world.schedulers,
                        *(a for a in self.world.agents if a.node == node),
                    ]:
                        self.world.renew(process)
                    continue
                note = drain_terms(rng.choice((None, 0, 0, LEASE_S)), "")
                if word == "until":  # its time is over, or far ahead
                    note = str(rng.choice((1, FAR_AHEAD_MS)))
                call = store.commands.set_node(p, node, word, note=note)
                self.world.act(self.world.customer, "drain", lambda call=call: store.run(call))  # type: ignore[misc]

    # -- faults ------------------------------------------------------------------------------------

    def late(self, rng: Random) -> None:
        """Let a delayed request arrive, mostly a request that changes tasks or slots; some arrive again later."""
        late = self.world.wire.late
        telling = [at for at, request in enumerate(late) if request.moves]
        if late:
            # what is new still meets what it was meant for
            telling = telling[-4:] if rng.random() < 0.5 else telling
            at = rng.choice(telling) if telling and rng.random() < 0.8 else rng.randrange(len(late))
            request = late[at] if rng.random() < 0.4 else late.pop(at)
            self.ghost.coverage["late requests"] += 1
            self.world.wire.arrive(request)

    def kill_agent(self, rng: Random) -> None:
        if agent := self._agent(rng):
            self.world.kill(agent)
            self.world.bury()

    def start_agent(self, rng: Random) -> None:
        there = {agent.node for agent in self.world.agents}
        if missing := [node for node in self.schedule.nodes if node not in there]:
            self._new_agent(rng, rng.choice(missing))

    def second_agent(self, rng: Random) -> None:
        self._new_agent(rng, rng.choice(self.schedule.nodes))

    def _new_agent(self, rng: Random, node: str) -> None:
        """Return a node's offer: n1's never changes, so that every task fits somewhere; the others'
        do.
        """
        offer, score = NODES[node]
        bundle = (
            Resources.of(rng.randint(1, 3), {"mem": rng.choice((3, 4, 6))})
            if node != "n1"
            else parse_resources(offer)
        )
        self.world.start_agent(node, bundle, score)

    def kill_scheduler(self, rng: Random) -> None:
        if self.world.schedulers:
            self.world.kill(rng.choice(self.world.schedulers))
            self.world.bury()

    def start_scheduler(self, rng: Random) -> None:
        live = [scheduler.name for scheduler in self.world.schedulers]
        if len(live) < 3:
            gone = [name for name in ("s1", "s2") if name not in live]
            self.world.start_scheduler(rng.choice(gone) if gone and rng.random() < 0.5 else "")

    def leave_scheduler(self, rng: Random) -> None:
        if len(self.world.schedulers) > 1:
            scheduler = rng.choice(self.world.schedulers)
            if not self.world.act(scheduler, "loop", scheduler.leave):
                scheduler.dead = True
            self.world.bury()

    def leave(self, rng: Random) -> None:
        if agent := self._agent(rng):
            if not agent.agent.node.leaving:
                agent.agent.leave()
            elif not agent.agent.node.runs.going():
                self.world.act(agent, "bell", agent.depart)

    def oversleep(self, rng: Random) -> None:
        processes: list[Process] = [*self.world.agents, *self.world.schedulers]
        if len(self.world.stack) < 3 and processes:
            self.world.oversleep(rng.choice(processes))

    def lapse(self, rng: Random) -> None:
        """Let a node be given up while it runs something, and come back: what it ran is killed, and
        may live on.
        """
        busy = [agent for agent in self._awake(rng) if agent.agent.node.runs.going()]
        busy.sort(key=lambda agent: -max(len(run.slots) for run in agent.agent.node.runs.going()))
        if busy and len(self.world.stack) < 3:
            self.world.oversleep(busy[0])
            self.world.act(busy[0], "pass", busy[0].renew)
            for _ in range(rng.randint(0, 3)):
                self.submit(rng)
                self.turn(rng)
                self.bell(rng)

    def rejoin(self, rng: Random) -> None:
        """Let a scheduler be put out, and come back under its name while old requests are on their
        way.
        """
        if self.world.schedulers and len(self.world.stack) < 3:
            scheduler = rng.choice(self.world.schedulers)
            self.world.oversleep(scheduler)
            if rng.random() < 0.5:
                self.world.kill(scheduler)
                self.world.bury()
                self.world.start_scheduler(scheduler.name)
                scheduler = self.world.schedulers[-1]
                self.world.act(scheduler, "loop", scheduler.turn)
            for _ in range(rng.randint(1, 6)):
                self.world.act(scheduler, "member", scheduler.beat)

    def sleep(self, rng: Random) -> None:
        """Let a process sleep for some steps."""
        processes: list[Process] = [*self.world.agents, *self.world.schedulers]
        if processes:
            rng.choice(processes).awake_at = self.world.step + rng.randint(3, 30)

    def jump(self, rng: Random) -> None:
        """Let all processes sleep."""
        self.world.pass_time(rng.uniform(0.5, 2.5) * LEASE_S)

    def flush(self, rng: Random) -> None:
        self.world.client.script_flush()

    def restart(self, rng: Random) -> None:
        self.world.restart_server(rng.choice(self.world.primaries.names))

    def away(self, rng: Random) -> None:
        """Let a primary not answer for a while, and then go on as if nothing had been."""
        primaries = self.world.primaries
        now_s = self.world.clock.now_s
        name = rng.choice(primaries.names)
        if not primaries.is_away(name, now_s):
            self.ghost.coverage["primaries away"] += 1
            away_s = rng.uniform(0.02, 1.5) * LEASE_S
            primaries.away_until_s[name] = now_s + away_s
            if away_s > LEASE_S / 2:  # every leader has noticed, or paused as long: it watches anew
                primaries.restarted_s[name] = now_s + away_s

    def move(self, rng: Random) -> None:
        """Let a hash slot move to another primary."""
        primaries = self.world.primaries
        tag = rng.choice(primaries.tags)
        name = rng.choice([name for name in primaries.names if name != primaries.owners[tag]])
        self.world.trace("moves", tag, name)
        self.ghost.coverage["slots moved"] += 1
        primaries.owners[tag] = name

    def wall(self, rng: Random) -> None:
        """Let the server's wall clock jump, and the client's with it."""
        seconds = rng.choice((-3600, -10, 10, 3600))
        self.world.clock.wall_s += seconds
        self.world.clock.was_set_back |= seconds < 0

    def age(self, rng: Random) -> None:
        """Let half a retention go by on the server's clock, so that a generation of ended tasks
        begins.
        """
        self.world.clock.wall_s += RETENTION_S * 0.51

    def rollback(self, rng: Random) -> None:
        """Restart a server without its last writes: with the data that it had when this step was
        last played.
        """
        world = self.world
        primaries = self.world.primaries
        if world.stack:
            return
        if world.backup:
            name = rng.choice(primaries.names)
            lost = primaries.tags_of(name)
            world.trace("the last writes are lost", name)
            self.ghost.coverage["rollbacks"] += 1
            primaries.rolled_back |= lost
            world.restore(name)
            world.restart_server(name)
            there = read_state(world.client, [], State(), world.config.shards).tasks
            for id, task in list(self.ghost.tasks.items()):
                if f"q{primaries.keys.shard_of(id)}" in lost:
                    task.final = ""
                    if id not in there:
                        del self.ghost.tasks[id]
            self.ghost.look()
        world.keep()
