"""docs/journey-of-a-task.md is true: its blocks are what each script really changes,
times aside.
"""

import difflib
import re
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parsync_redis import ParsyncClient
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim
from parsync_redis.model.needs import parse_resources
from parsync_redis.model.options import Strategy
from parsync_redis.model.place import Place
from parsync_redis.model.record import read_run
from parsync_redis.scheduler.core.core import Core
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.kit.documents import WRITE, Document, tables
from tests.kit.oracle.audit import audit
from tests.kit.servers import PRIMARIES

PATH = "docs/journey-of-a-task.md"
NODES = {"n1": (9.5, "slots=4 gpu=2 gpu_model:a100"), "n2": (3.0, "slots=2 gpu_model:t4")}
NEEDS: dict[str, Any] = {"slots": 2, "resources": {"gpu": 1}, "require": {"gpu_model": "a100"}}
KIND = "proj.render slots=2 gpu=1 gpu_model:a100"
SALT = ".482913"
TASKS = KnownTasks.of({"proj.render": None})
NAMED = {"extra": "ID", "pending": "KIND", "stats": "SCHEDULER"}
TIME = re.compile(r"\b(?:1[0-9]{12}(?:[0-9]{2})?|[0-9]{16})\b")


# -- what the keys say -----------------------------------------------------------------------------

Keys = dict[str, tuple[str, dict[str, str]]]


def read_all(store: Store) -> Keys:
    """Return every key -> its type and its content as lines."""
    client: Any = store.client
    found = {}
    for name in sorted(client.keys(), key=_rank):
        key = name.decode()
        kind = client.type(name).decode()
        if kind == "hash":
            rows = {k.decode(): _shown(key, v) for k, v in client.hgetall(name).items()}
        elif kind == "zset":
            rows = {
                k.decode(): f"{score:.0f}"
                for k, score in client.zrange(name, 0, -1, withscores=True)
            }
        elif kind == "set":
            rows = {member.decode(): "" for member in sorted(client.smembers(name))}
        elif kind == "stream":
            rows = {id.decode(): _fields(fields) for id, fields in client.xrange(name)}
        elif kind == "list":
            rows = {str(at): value.decode() for at, value in enumerate(client.lrange(name, 0, -1))}
        else:
            rows = {"bits": " ".join(f"{byte:08b}" for byte in client.get(name))}
        found[key] = kind, rows
    return found


def _rank(name: bytes) -> tuple[bool, bool, bytes]:
    """Return the rank of a key: the cluster's own keys first, then the queue's, then the
    partitions'.
    """
    return b"{demo:p" in name, b":q0}" in name, name


def _fields(fields: dict[bytes, bytes]) -> str:
    return "  ".join(f"{name.decode()} {value.decode()}" for name, value in fields.items())


def _shown(key: str, value: bytes) -> str:
    return "(the Celery message)" if key.endswith(":messages") else value.decode()


def changes(before: Keys, after: Keys) -> str:
    """Return the difference as the document shows it: + is set, - is removed."""
    lines = []
    for key in sorted({*before, *after}, key=lambda key: _rank(key.encode())):
        kind, rows = after.get(key) or (before[key][0], {})
        old = before.get(key, ("", {}))[1]
        changed = {name: value for name, value in sorted(rows.items()) if old.get(name) != value}
        width = max(map(len, changed), default=0) + 2
        lines_of = {
            name: value.strip("\n").replace("\n", "\n    " + " " * width)
            for name, value in changed.items()
        }
        told = [f"  + {name:<{width}}{value}".rstrip() for name, value in lines_of.items()]
        told += [f"  - {name}" for name in sorted(old) if name not in rows]
        if told:
            lines += [f"{key}   ({kind})", *told]
    return "".join(f"{line}\n" for line in lines)


class Traveller:
    """Goes from hop to hop, and keeps what each changed by the heading of the
    document's section.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.told = dict[str, str]()
        self._before = read_all(store)
        self.types: dict[str, str] = {}

    def hop(self, heading: str, told: str | None = None) -> None:
        """End a section: write what changed since the last section, or `told`."""
        now = read_all(self.store)
        self.types |= {key: kind for key, (kind, _) in now.items()}
        self.told[heading] = changes(self._before, now) if told is None else told
        self._before = now


# -- the journey -----------------------------------------------------------------------------------


def travel(store: Store, client: ParsyncClient) -> Traveller:
    """Take the task a81f from submit to release; then lose the node of b92c; then let two claims
    compete for one slot. Return the traveller.
    """
    run = store.run
    commands = store.commands
    here = Traveller(store)

    with patch("secrets.token_hex", return_value="5d41402abc4b2a76"):
        join_cluster(store, client.settings, create=True)
    for name, (score, offer) in NODES.items():
        labels = offer.rpartition(" ")[2]
        p = run(commands.deal_node(name, 2, labels, int(offer[6]), score))
        known = offer_with(parse_resources(offer), TASKS, ["celery"]).text
        run(commands.register_node(p, name, 0, score, known))
        run(commands.offer(name, known, TASKS))
    run(commands.renew_scheduler("s1"))
    here.hop("Before: a cluster of two nodes")

    client.submit("proj.render", [7], id="a81f", priority=5, **NEEDS)
    here.hop("1. submit")

    core = Core("s1", 2, Strategy.ADAPTIVE, 1.5, np.random.default_rng(1))
    for p in (0, 1):
        snapshot = run(commands.read_partition(p))
        core.on_nodes(p, store.nodes(p).values(), snapshot.epoch)
        core.on_snapshot(snapshot, 1.0)
    core.on_names(TASKS.digest, TASKS.declared)
    core.on_took(run(commands.take("s1")))
    plan = core.plan()
    look = plan.shard_looks[0]
    assert look.take == [(KIND, 1)]
    core.on_took(run(commands.take("s1", look.take, look.since, salt=SALT)))
    here.hop("2. take")

    claim = core.plan().commit[0][0]
    here.hop("3. place", show_claim(claim))

    judged = run(commands.commit(0, [claim]))
    core.on_judged(judged)
    here.hop("4. commit")

    place = core.plan().confirm[0]
    assert run(commands.confirm([place])) == ["placed"]
    here.hop("5. confirm")

    assert store.client.blmpop(1, 1, store.keys.inbox(0, "n1"), direction="RIGHT", count=64)
    ((word, message),) = run(commands.start([place]))
    assert word == "ok"
    assert b'"task": "proj.render"' in message
    here.hop("6. start")

    assert run(commands.finish([(place, "succeeded", "")])) == ["ok"]
    here.hop("7. finish")

    assert run(commands.release(0, [place])) == ["freed"]
    here.hop("8. release")
    assert client.status("a81f").state == "succeeded"
    assert audit(store) == []

    lose(store, client, here)
    collide(store, here)
    return here


def lose(store: Store, client: ParsyncClient, here: Traveller) -> None:
    """Lose the node of a task while the task runs."""
    run = store.run
    commands = store.commands
    client.submit("proj.render", [8], id="b92c", **NEEDS)
    (task,) = run(commands.take("s1", [(KIND, 1)], salt=SALT)).tasks
    epoch = run(commands.read_partition(0)).epoch
    claim = Claim(task.id, task.attempt, 0, "n1", (0, 1), 1, "gpu=1", first=0, epoch=epoch)
    judged = run(commands.commit(0, [claim]))
    place = claim.won(judged.now_ms)
    run(commands.confirm([place]))
    run(commands.start([place]))
    here.hop("")
    word, leases = run(commands.reclaim(0, "n1", 1, 0))
    assert (word, [lease.place.task for lease in leases]) == ("down", ["b92c"])
    here.hop("reclaim")
    assert run(commands.requeue([(place, "its node n1 was lost")])) == ["pending"]
    here.hop("requeue")
    assert run(commands.finish([(place, "succeeded", "")])) == ["stale"]
    assert run(commands.release(0, [place])) == ["freed"]
    here.hop("release, by the leader")
    assert [task.attempt for task in run(commands.take("s1", [(KIND, 1)], salt=SALT)).tasks] == [
        "2@2.s1.482913"
    ]
    run(commands.cancel(["b92c"]))
    assert audit(store) == []
    here.hop("")


def collide(store: Store, here: Traveller) -> None:
    """Let two schedulers claim the same slot: the first wins, the second learns who has it."""
    epoch = store.run(store.commands.read_partition(1)).epoch
    wanted = (("c1", 0), ("d1", 0), ("d1", 1))
    claims = [Claim(task, "1@9", 1, "n2", (slot,), 1, "", 0, epoch) for task, slot in wanted]
    judged = store.run(store.commands.commit(1, claims))
    told = [
        f"{claim.task} wants {claim.node}/{claim.slots[0]}   {verdict.word.value:<9} "
        f"{verdict.detail}\n"
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True)
    ]
    here.hop("Two schedulers want the same slot", "".join(told))


def show_claim(claim: Claim) -> str:
    """Return a claim as the document shows it."""
    slots, bits = (
        ",".join(str(first + slot) for slot in claim.slots) for first in (0, claim.first)
    )
    return (
        f"task {claim.task}   attempt {claim.attempt}   partition p{claim.partition}   epoch "
        f"{claim.epoch}\n"
        f"node {claim.node}   incarnation {claim.inc}   slots {slots}   bits {bits}   amounts "
        f"{claim.asked}\n"
    )


@pytest.fixture
def journey(server):
    if PRIMARIES:
        pytest.skip("the page is about one server: on several, each shard has keys of its own")
    settings = Settings.load(url=server.url, cluster="demo", partitions=2, gap_s=0.5, lease_s=10)
    with ParsyncClient(settings) as client:
        return travel(client.store, client)


def test_every_hop_changes_what_the_document_shows(journey):
    document = Document(PATH)
    blocks = {block.heading: block for block in document.blocks("text")}
    told = {heading: text for heading, text in journey.told.items() if heading}
    assert list(blocks) == list(told)
    if WRITE:
        document.replace([(blocks[heading], text) for heading, text in told.items()])
        return
    for heading, text in told.items():
        right, shown = (TIME.sub("TIME", each) for each in (text, blocks[heading].text))
        history = "\n".join(
            difflib.unified_diff(
                shown.splitlines(), right.splitlines(), "the document", "Redis", n=1
            )
        )
        assert shown == right, (
            f"{heading} in {PATH} is not what happens (PARSYNC_TEST_WRITE_DOCS=1):\n{history}"
        )


def test_every_key_of_the_journey_has_the_type_that_keys_md_says(journey):
    said = {
        row[0].strip("`"): row[1]
        for row in tables(Document("docs/keys.md").text)
        if row[0].startswith("`parsync")
    }
    for key, kind in journey.types.items():
        form = (
            key.replace("{demo", "{C")
            .replace("{C:q0}", "{C:qN}")
            .replace("{C:p0}", "{C:pN}")
            .replace("{C:p1}", "{C:pN}")
        )
        form = re.sub(r":(extra|pending|stats):.*", lambda m: f":{m[1]}:{NAMED[m[1]]}", form)
        form = re.sub(r":inbox:.*", ":inbox:NODE", form)
        assert said[form] == kind, key


def test_a_running_entry_is_a_place_and_its_start_time():
    text = "b92c 1@2.s1.482913 p0 n1/0,1 inc=1 gpu=1 since=1795363901628"
    place = Place("b92c", "1@2.s1.482913", 0, "n1", (0, 1), 1, 1795363901628, "gpu=1")
    assert read_run(text) == (place, None)
    assert read_run(f"{text} started=1795363901640") == (place, 1795363901640)
