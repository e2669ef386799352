"""The reason that people read of a waiting task is true, and the remedy that they read is enough.

Each situation has a cause that is not a free slot alone. `explain` says why. Whoever then does what
`explain` names as the remedy has a task that a scheduler can place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from parsync_redis.inspect.explanation import explain_task
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.booking import Booking
from parsync_redis.model.explanation import Explanation, Outlook
from parsync_redis.model.ids import encode_id
from parsync_redis.model.needs import Resources, parse_resources
from parsync_redis.model.node import trial_note
from parsync_redis.model.taints import offered_taints
from parsync_redis.placement.reasons import ROOM
from parsync_redis.security.acl import user_line
from parsync_redis.security.acl_tables import Role
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.kit.driver import Driver

ID = "t"


def node(drive: Driver, name: str = "n1", slots: int = 1, **more: Any) -> None:
    """Register a node."""
    drive.node(name, slots, **more)


def run(
    drive: Driver, id: str, slot: int = 0, options: dict[str, Any] | None = None, name: str = "n1"
) -> Any:
    """Let a task run on a node; return its place."""
    drive.submit(id, options)
    needs = drive.line(id).kind.partition(" ")[2]
    place = drive.held(
        id, drive.take()[id], node=name, slots=(slot,), inc=inc_of(drive, name), needs=needs
    )
    assert drive.start(place) == "ok"
    return place


def inc_of(drive: Driver, name: str) -> int:
    """Return the incarnation of a node."""
    return drive.store.nodes(0)[name].inc


def end(drive: Driver, place: Any, release: bool = True) -> None:
    """Let a task end, and free its slots."""
    assert drive.finish(place) == "ok"
    if release:
        assert drive.release(place) == "freed"


def waits(drive: Driver, id: str = ID, **options: Any) -> None:
    """Submit the task that is asked about."""
    drive.submit(id, {"wait_for_capacity": True, **options})


def set_node(drive: Driver, word: str, note: str = "", name: str = "n1") -> None:
    """Change the state of a node."""
    assert drive.run(drive.commands.set_node(0, name, word, None, note))[0] == "ok"


def put_off(drive: Driver, why: str, delay_ms: int = 20_000) -> None:
    """Let the task come to n1, whose worker gives it back before it begins."""
    waits(drive)
    place = drive.held(ID, drive.take()[ID])
    assert drive.start(place) == "ok"
    assert drive.requeue(place, why, "unbegun", delay_ms) == "pending"
    assert drive.release(place) == "freed"


@dataclass
class Scene:
    """A situation: how it comes, why the task waits, the remedy that people read, and how the remedy is done.

    ahead: the number of waiting tasks before the task.
    not_told: words that the reason must not have.
    outlook: what to expect.
    """

    come: Callable[[Driver], Any]
    why: str
    remedies: tuple[str, ...] | None = None
    do: Callable[[Driver, Any], Any] | None = None
    ahead: int = 0
    not_told: str = "  "
    outlook: Outlook = Outlook.WAITS


def full(drive: Driver) -> Any:
    node(drive)
    place = run(drive, "x")
    waits(drive)
    return place


def ended(drive: Driver) -> Any:
    place = full(drive)
    end(drive, place, release=False)
    return place


def runs_elsewhere(drive: Driver) -> Any:
    """Let task x be requeued and run on n2, while its lease on n1 stands yet."""
    place = full(drive)
    assert drive.requeue(place) == "pending"
    node(drive, "n2", labels={"other": "1"})
    attempt = drive.take()["x"]
    again = drive.held("x", attempt, node="n2", inc=inc_of(drive, "n2"))
    assert drive.start(again) == "ok"
    return place


def full_and_apart(drive: Driver) -> Any:
    node(drive)
    place = run(drive, "x", options={"apart": "web"})
    waits(drive, apart="web")
    return place


def apart(drive: Driver) -> Any:
    node(drive, slots=2)
    place = run(drive, "x", options={"apart": "web"})
    waits(drive, apart="web")
    return place


def short(drive: Driver) -> Any:
    node(drive, slots=2, resources={"gpu": 1})
    place = run(drive, "x", options={"resources": {"gpu": 0.75}})
    waits(drive, resources={"gpu": 0.5})
    return place


def offer(drive: Driver, resources: Resources) -> None:
    """Register n1 with an offer."""
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, resources.text))


def devices(drive: Driver) -> Any:
    offer(drive, Resources.of(2, None, None, (), {"gpu": [0]}))
    place = run(drive, "x", options={"resources": {"gpu": 1}})
    waits(drive, resources={"gpu": 0.5})
    return place


def drained_and_full(drive: Driver) -> Any:
    place = full(drive)
    set_node(drive, "drain", "no deadline: a new disk")
    return place


def undrain_and_end(drive: Driver, place: Any) -> None:
    set_node(drive, "undrain")
    end(drive, place)


def lost(drive: Driver) -> None:
    node(drive)
    drive.lose()
    waits(drive)


def held_back(drive: Driver) -> None:
    node(drive)
    drive.run(drive.commands.report_failures(0, "n1", 1, 0, False, [("work", 5, 5, 5, 60_000)]))
    waits(drive)


def booked(drive: Driver) -> None:
    node(drive, slots=2)
    run(drive, "x")
    drive.submit("big", {"slots": 2}, name="big")
    kind = "big slots=2"
    drive.run(drive.commands.book([Booking("n1", kind, "big", 0)], 60))
    waits(drive)


def others_ahead(drive: Driver) -> Any:
    """Let tasks wait that want another node, that no node can hold, and that want the same slot."""
    place = full(drive)
    drive.cancel(ID)
    node(drive, "n2", labels={"zone": "b"})
    run(drive, "y", name="n2", options={"require": {"zone": "b"}})
    for number in range(3):
        drive.submit(f"elsewhere{number}", {"require": {"zone": "b"}})
        drive.submit(f"never{number}", {"require": {"zone": "c"}, "wait_for_capacity": True})
    drive.submit("same", {"require": {"zone": {"not": "b"}}})
    drive.submit(ID + "2", {"require": {"zone": {"not": "b"}}})
    return place


def low(drive: Driver) -> Any:
    node(drive)
    place = run(drive, "x")
    drive.submit("earlier", {"priority": 5})
    waits(drive)
    for number in range(2):
        drive.submit(f"later{number}", {"priority": 5})
    return place


def low_done(drive: Driver, place: Any) -> None:
    for id in ("earlier", "later0", "later1"):
        drive.cancel(id)
    end(drive, place)


FULL = ("1 more free slot on n1",)

SCENES: dict[str, Scene] = {
    "full, and who holds it": Scene(
        full, "only node n1 fits: it is full until task x ends", FULL, end
    ),
    "full, and who held it has ended": Scene(
        ended,
        "only node n1 fits: it is full; task x has ended and its slots are not free yet",
        FULL,
        lambda drive, place: drive.release(place),
        not_told="until",
    ),
    "a lease of an attempt that is over": Scene(
        runs_elsewhere,
        "n1 is full; task x has ended and its slots are not free yet",
        None,
        None,
        not_told="n1 is full until",
    ),
    "full and apart": Scene(
        full_and_apart,
        "only node n1 fits: it is full until task x ends",
        ("1 more free slot on n1 and the end of the task with apart=web on n1",),
        end,
    ),
    "apart": Scene(
        apart,
        "only node n1 fits: it has a task with apart=web until task x ends",
        ("the end of the task with apart=web on n1",),
        end,
    ),
    "too little of a resource": Scene(
        short,
        "it is short of gpu: the task needs 0.5, and 0.25 of 1 is left until task x ends",
        ("0.25 more of gpu free on n1",),
        end,
    ),
    "drained and full": Scene(
        drained_and_full,
        "only node n1 fits: it is drained: a new disk",
        ("parsync nodes undrain n1 and 1 more free slot on n1",),
        undrain_and_end,
    ),
    "drained": Scene(
        lambda drive: (node(drive), set_node(drive, "drain", "no deadline"), waits(drive)),
        "only node n1 fits: it is drained",
        ("parsync nodes undrain n1",),
        lambda drive, _: set_node(drive, "undrain"),
    ),
    "down": Scene(
        lost,
        "only node n1 fits: it is down since ",
        ("start the worker of node n1 again",),
        lambda drive, _: drive.node("n1", 1, known_inc=1),
    ),
    "it shuts down": Scene(
        lambda drive: (node(drive), set_node(drive, "leaving"), waits(drive)),
        "only node n1 fits: it shuts down",
        ("start the worker of node n1 again",),
        lambda drive, _: drive.node("n1", 1),
    ),
    "a black hole": Scene(
        lambda drive: (
            node(drive),
            set_node(drive, "suspect", trial_note("tasks fail there", 30)),
            waits(drive),
        ),
        "only node n1 fits: it is suspect: tasks fail there; after 30 s it gets a task on trial",
        (
            "mend why tasks fail on n1 (parsync events --event failed --node n1), then parsync "
            "nodes undrain n1",
        ),
        lambda drive, _: set_node(drive, "undrain"),
    ),
    "tasks do not start": Scene(
        lambda drive: (
            node(drive),
            set_node(drive, "suspect", "alive, but 3 tasks did not start"),
            waits(drive),
        ),
        "only node n1 fits: it is suspect: alive, but 3 tasks did not start",
        ("parsync nodes undrain n1",),
        lambda drive, _: set_node(drive, "undrain"),
    ),
    "its worker stands still": Scene(
        lambda drive: (
            node(drive),
            set_node(drive, "suspect", "its worker stands still: it is stopped"),
            waits(drive),
        ),
        "only node n1 fits: it is suspect: its worker stands still",
        ("restart the worker of node n1, or end what blocks it: its log says where",),
        lambda drive, _: drive.node("n1", 1),
    ),
    "a name that is held back": Scene(
        held_back,
        "only node n1 fits: it holds such tasks back, because they fail there",
        ("mend why such tasks fail on n1: parsync events --event failed --node n1",),
        lambda drive, _: drive.run(
            drive.commands.report_failures(0, "n1", 1, 0, False, [("work", 1, 0, 0, 0)])
        ),
    ),
    "reserved for a large task": Scene(
        booked,
        "only node n1 fits: it is reserved for task big (big slots=2)",
        ("n1 is not reserved for task big (big slots=2) any more",),
        lambda drive, _: (drive.cancel("big"), drive.run(drive.commands.book([], 60))),
        ahead=1,
    ),
    "no node": Scene(
        waits,
        "the cluster has no node",
        ("start a worker of the app with --parsync",),
        lambda drive, _: node(drive),
    ),
    "no node knows the name": Scene(
        lambda drive: (
            drive.node("n1", 1),
            waits(drive),
            drive.offer("n1", "slots=1", "other"),
            others_only(drive),
        ),
        "no node knows a task of that name",
        ("start a worker that has slots=1 and knows work",),
        lambda drive, _: node(drive, "n2"),
        outlook=Outlook.NEVER,
    ),
    "a label that no node has": Scene(
        lambda drive: (node(drive, labels={"zone": "a"}), waits(drive, require={"zone": "z"})),
        "no node fits: no node has label zone:z; there are zone: a",
        ("start a worker that has slots=1 zone:z", "other needs: n1 lacks zone:z"),
        lambda drive, _: node(drive, "n2", labels={"zone": "z"}),
        outlook=Outlook.NEVER,
    ),
    "more than the largest node has": Scene(
        lambda drive: (node(drive, resources={"gpu": 1}), waits(drive, resources={"gpu": 2})),
        "no node fits: task needs gpu=2; the most is 1",
        ("start a worker that has slots=1 gpu=2", "other needs: n1 lacks gpu=2 (has 1)"),
        lambda drive, _: node(drive, "n2", resources={"gpu": 2}),
        outlook=Outlook.NEVER,
    ),
    "not all at once": Scene(
        lambda drive: (
            node(drive, "n1", labels={"zone": "z"}),
            node(drive, "n2", resources={"gpu": 1}),
            waits(drive, resources={"gpu": 1}, require={"zone": "z"}),
        ),
        "no node has all of",
        ("start a worker that has slots=1 gpu=1 zone:z", "other needs: n1 lacks gpu=1 (has 0)"),
        lambda drive, _: node(drive, "n3", resources={"gpu": 1}, labels={"zone": "z"}),
        outlook=Outlook.NEVER,
    ),
    "a taint": Scene(
        lambda drive: (
            offer(drive, Resources.of(1, None, None, offered_taints(["spot"]))),
            waits(drive),
        ),
        "no node fits: every node has a taint that the task does not tolerate",
        (
            "start a worker that has slots=1",
            'other needs: n1 lacks the absence of taint spot (tolerate=["spot"] would do)',
        ),
        lambda drive, _: node(drive, "n2"),
        outlook=Outlook.NEVER,
    ),
    "a node that keeps its devices": Scene(
        lambda drive: (offer(drive, Resources.of(1, None, None, (), {"gpu": [0]})), waits(drive)),
        "no node fits: every node has devices (gpu)",
        (
            "start a worker that has slots=1",
            "other needs: n1 lacks shared devices: it takes only tasks that ask for its gpu",
        ),
        lambda drive, _: node(drive, "n2"),
        outlook=Outlook.NEVER,
    ),
    "too few devices with enough left": Scene(
        devices,
        "it is short of gpu",
        ("1 more gpu with enough left on n1",),
        end,
    ),
    "a node that is down, and a task for another": Scene(
        lambda drive: (node(drive), drive.lose(), waits(drive, require={"zone": "z"})),
        "no node fits: no node has label zone:z",
        (
            "start a worker that has slots=1 zone:z",
            "other needs: n1 lacks zone:z; and start the worker of node n1 again",
        ),
        lambda drive, _: node(drive, "n2", labels={"zone": "z"}),
        outlook=Outlook.NEVER,
    ),
    "put off by a rate limit": Scene(
        lambda drive: (
            node(drive),
            put_off(drive, "n1 has run as many of work as its rate limit allows"),
        ),
        "n1 has run as many of work as its rate limit allows: it is tried again at ",
        (),
        not_told="it is due",
    ),
    "put off because its name is held back": Scene(
        lambda drive: (node(drive), put_off(drive, "tasks of work fail on n1")),
        "tasks of work fail on n1: it is tried again at ",
        (),
        not_told="it is due",
    ),
    "put off by its message": Scene(
        lambda drive: (
            node(drive),
            put_off(drive, "its message says that it must not start before noon"),
        ),
        "its message says that it must not start before noon: it is tried again at ",
        (),
    ),
    "a countdown": Scene(
        lambda drive: (node(drive), drive.submit(ID, delay_ms=60_000)),
        "it is due at ",
        (),
        not_told="tried again",
    ),
    "it could not begin": Scene(
        lambda drive: (node(drive), could_not_begin(drive)),
        f"node n1 {ROOM}; its last attempt left n1: it could not begin: no slot",
        (),
        outlook=Outlook.NOW,
    ),
    "only those that want the same node are before it": Scene(
        others_ahead, "it is full until task x ends", FULL, ahead=1
    ),
    "low priority": Scene(
        low,
        "n1 fits: it is full until task x ends; 2 tasks go first only by a higher priority than 0",
        FULL,
        low_done,
        ahead=3,
    ),
}


def others_only(drive: Driver) -> None:
    """Let n1 be a worker that knows no task `work`."""
    tasks = KnownTasks.of({"other": None})
    offer(drive, offer_with(parse_resources("slots=1"), tasks))


def could_not_begin(drive: Driver) -> None:
    waits(drive)
    place = drive.held(ID, drive.take()[ID])
    assert drive.start(place) == "ok"
    assert drive.requeue(place, "it could not begin: no slot", "unbegun") == "pending"
    assert drive.release(place) == "freed"


@pytest.fixture
def cluster(store: Store) -> Driver:
    """Return a cluster with a scheduler that is alive."""
    settings = Settings(url=f"redis://{store.address}/0", cluster=store.keys.cluster, partitions=1)
    join_cluster(store, settings, create=True)
    drive = Driver(store)
    drive.run(drive.commands.renew_scheduler("s1", stats={"pid": 1}))
    return drive


def asked(drive: Driver) -> Explanation:
    return explain_task(drive.store, encode_id(ID if drive.state(ID) != "cancelled" else ID + "2"))


@pytest.mark.parametrize("name", SCENES)
def test_the_explanation_of_a_task_is_true_and_its_remedy_works(cluster: Driver, name: str) -> None:
    scene = SCENES[name]
    came = scene.come(cluster)
    explanation = asked(cluster)
    assert scene.why in explanation.why
    assert scene.not_told not in explanation.why
    assert scene.remedies in (None, tuple(explanation.remedies))
    assert explanation.ahead == scene.ahead
    assert explanation.outlook is scene.outlook
    if scene.do is not None:
        scene.do(cluster, came)
        explanation = asked(cluster)
        assert (explanation.outlook, explanation.remedies) == (Outlook.NOW, ()), explanation
        assert "has room" in explanation.why


def test_a_holder_that_has_ended_is_neither_named_nor_forecast(cluster: Driver) -> None:
    ended(cluster)
    explanation = asked(cluster)
    assert explanation.holders == ()
    assert explanation.no_forecast == "slots of a task that has ended are not free yet"


def test_a_client_that_may_not_read_which_tasks_wait_gets_an_explanation_without_a_forecast(
    cluster: Driver,
) -> None:
    full(cluster)
    waits(cluster, "behind")
    name = cluster.keys.cluster
    orders = cluster.store.client
    orders.execute_command(
        "ACL", "SETUSER", *user_line(Role.CLIENT, name, "0" * 64).split(), ">secret"
    )
    client = Store.from_url(f"redis://{name}-client:secret@{cluster.store.address}/0", name)
    try:
        explanation = explain_task(client, encode_id("behind"))
    finally:
        client.client.close()
        orders.execute_command("ACL", "DELUSER", f"{name}-client")
    assert (explanation.ahead, explanation.outlook) == (1, Outlook.WAITS)
    assert explanation.no_forecast == "this login may not read the tasks before it"
