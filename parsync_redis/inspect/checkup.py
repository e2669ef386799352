"""The check-up behind `parsync doctor`.

The check-up reads facts of the server and the cluster. A small function judges each fact.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..errors import (
    AccessDenied,
    ClusterMismatch,
    DamagedState,
    ServerUnfit,
    ServerUnreachable,
)
from ..model.node import NodeState, has_terms, trust_remedy
from ..model.policy import LimitEntry
from ..model.policy_document import entry_text
from ..model.views import NodeView
from ..settings import Settings
from ..store.cluster import join_cluster
from ..store.policy import StoredPolicy, find_drift, read_declaring, stored_policy
from ..store.reads.demand import count_tasks, read_kinds
from ..store.reads.schedulers import (
    Refusal,
    SchedulerView,
    find_no_cluster,
    read_refusals,
    read_schedulers,
)
from ..store.reads.views import Directory, read_views
from ..store.repair.losses import KEEP_S, Loss, read_losses
from ..store.scripts import calls
from ..store.store import Store
from .audit import audit
from .damage import check_damage
from .primary_checks import check_primaries, judge_clocks, read_clocks, read_settings
from .server_checks import (
    Check,
    Level,
    judge_allocator,
    judge_lists,
    judge_memory,
    judge_persistence,
    judge_role,
)


def check_up(
    store: Store,
    settings: Settings,
    with_audit: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> list[Check]:
    """Return the checks of the server and the cluster, each judged once, without waiting.

    An unreachable server is a failed check. with_audit, say: see `audit`.
    """
    checks: list[Check] = []
    try:
        checks += _checks(store, settings, with_audit, say)
    except ServerUnreachable as error:
        checks.append(
            Check(
                "server",
                "fail",
                str(error),
                "start it, or say where it is with --url or PARSYNC_URL",
            )
        )
    return checks


def _checks(
    store: Store, settings: Settings, with_audit: bool, say: Callable[[str], object]
) -> Iterator[Check]:
    try:
        info = store.check_server()
        yield Check("server", "ok", f"{info['name']} {info['version']} at {store.address}")
        yield Check("eviction", "ok", "maxmemory-policy noeviction")
    except ServerUnreachable:
        raise
    except ServerUnfit as error:
        yield Check("server", "fail", str(error))
        return
    if store.several:
        yield from check_primaries(store)
    else:
        server_settings = read_settings(store)
        yield from (judge_memory(info), judge_allocator(info), judge_lists(server_settings))
        yield from (judge_persistence(info, server_settings), judge_role(info))
    refusals = read_refusals(store)
    yield from judge_writes(refusals)
    yield judge_losses(read_losses(store))
    for address, replies in store.ask_servers(
        [("script_exists", *(script.sha for script in calls.ALL_SCRIPTS))]
    ).items():
        if not isinstance(replies, Exception):  # check_primaries names a primary that is away
            yield judge_scripts(replies[0], f"{address}: " if store.several else "")
    try:
        config = join_cluster(store, settings, create=False)
    except ClusterMismatch as error:
        yield Check("cluster", "fail", str(error))
        return
    if config is None:
        fault = find_no_cluster(store)
        yield Check("cluster", "fail", fault.why, fault.repair)
        return
    yield Check(
        "cluster",
        "ok",
        f"{settings.cluster}: partitions={config.partitions} shards={config.shards} "
        f"gap_s={config.gap_s:g} lease_s={config.lease_s:g}",
    )
    if store.several:
        yield from judge_clocks(read_clocks(store), config.gap_s)
    schedulers = read_schedulers(store)
    yield from judge_schedulers(schedulers, refusals)
    yield judge_subscribers(
        _count_listeners(store), sum(scheduler.alive for scheduler in schedulers)
    )
    yield from judge_nodes([node for _, nodes in read_views(store) for node in nodes])
    yield _queue(store)
    yield from _policy(store)
    yield judge_quarantine(int(store.pipe([("zcard", store.keys.shared("quarantine"))])[0]))
    yield check_damage(store, config.partitions)
    if with_audit:
        yield _audit(store, say)


# -- looking ---------------------------------------------------------------------------------------


def _count_listeners(store: Store) -> int:
    """Return the number of schedulers that hear ticks; 0 if the server does not answer."""
    server = store.servers().get(store.place_of(store.keys.tick))
    return int(server.pipe([("pubsub_shardnumsub", store.keys.tick)])[0][0][1]) if server else 0


def _audit(store: Store, say: Callable[[str], object]) -> Check:
    """Return the check of every record; it fails if the scripts that look cannot run."""
    try:
        return judge_audit(audit(store, say))
    except AccessDenied as error:
        repair = "audit with a viewer's login that parsync acl --scan of this version prints"
        return Check("audit", "fail", str(error), repair)
    except ServerUnreachable as error:
        repair = "audit again when all servers answer and a scheduler runs"
        return Check("audit", "fail", str(error), repair)


def _policy(store: Store) -> Iterator[Check]:
    """Yield the checks that the shards have the ceilings of the policy, and that apps agree."""
    try:
        stored = stored_policy(store)
        drift = find_drift(store)
        declaring = read_declaring(Directory(store))
    except DamagedState as error:
        yield Check("policy", "fail", str(error))
    except AccessDenied as error:  # a login of an earlier version
        yield Check("policy", "warn", str(error), "log in as parsync acl of this version prints")
    else:
        yield judge_policy(stored, drift.shards)
        yield from judge_declared(stored, declaring)


def _queue(store: Store) -> Check:
    totals = count_tasks(store)
    kinds = read_kinds(store).values()
    waiting = f"{sum(kind.count for kind in kinds)} waiting of {len(kinds)} kinds"
    counts = (
        f"{totals.later} not due yet, {totals.taken} taken by schedulers, "
        f"{totals.placed} placed or running"
    )
    return Check("tasks", "ok", f"{waiting}, {counts}")


# -- judging: pure ---------------------------------------------------------------------------------


def judge_losses(losses: list[Loss]) -> Check:
    """Warn if the server has lost writes.

    Tasks of lost writes are gone or may have run twice.
    """
    if not losses:
        return Check("lost writes", "ok", "none were noticed")
    further_losses = (
        f"; and {len(losses) - 1} more like it within {KEEP_S // 86_400} days"
        if len(losses) > 1
        else ""
    )
    repair = "submit again what is gone (the same ids are safe); appendfsync always loses nothing"
    return Check("lost writes", "warn", losses[0].text + further_losses, repair)


def judge_scripts(loaded: Iterable[bool], where: str = "") -> Check:
    """Count the loaded scripts. A missing script is no fault: a scheduler or a worker loads it."""
    is_loaded = list(loaded)
    missing = "" if all(is_loaded) else "; a scheduler or a worker loads the others"
    return Check("scripts", "ok", f"{where}{sum(is_loaded)} of {len(is_loaded)} loaded{missing}")


def judge_writes(refusals: Sequence[Refusal], of_a_part: Level = "fail") -> Iterator[Check]:
    """Fail for each server that takes no writes.

    of_a_part: the level for a server that holds only a part of the state, so tasks are still placed
    by the other servers.
    """
    if not refusals:
        yield Check("writes", "ok", "the server takes them")
    for refusal in refusals:
        level = of_a_part if refusal.holds else "fail"
        yield Check("writes", level, f"{refusal.why}: {refusal.effect}", refusal.repair)


def judge_schedulers(
    schedulers: Sequence[SchedulerView], refusals: Sequence[Refusal] = ()
) -> Iterator[Check]:
    """Fail if no scheduler is alive; warn of silent schedulers, and if no scheduler leads.

    refusals: the servers that take no writes. If the server with the keys of schedulers takes no
    writes, silence says nothing: no scheduler can renew its lease.
    """
    refusal = next((refusal for refusal in refusals if refusal.silences), None)
    alive = [scheduler.name for scheduler in schedulers if scheduler.alive]
    if refusal and len(alive) < len(schedulers):
        yield Check(
            "schedulers",
            "warn",
            "whether they live is not known: the server takes no writes",
            refusal.repair,
        )
        return
    if alive:
        yield Check("schedulers", "ok", f"{len(alive)} alive: {', '.join(alive)}")
    else:
        yield Check("schedulers", "fail", "none is alive: nothing is placed", "parsync scheduler")
    if still := [scheduler.name for scheduler in schedulers if not scheduler.alive]:
        yield Check(
            "schedulers",
            "warn",
            f"did not renew for one lease: {', '.join(still)}",
            "the leader removes them",
        )
    leader = next((scheduler.name for scheduler in schedulers if scheduler.leader), "")
    if leader in alive:
        yield Check("leader", "ok", leader)
    elif alive:
        yield Check(
            "leader",
            "warn",
            f"{leader or 'nobody'} at the moment",
            "another takes over within one lease",
        )


def judge_subscribers(hearing: int, alive: int) -> Check:
    """Warn if a live scheduler does not hear ticks.

    Such a scheduler goes on by its own clock, less evenly.
    """
    text = f"{hearing} of {alive} schedulers hear ticks"
    if hearing < alive:
        return Check(
            "ticks",
            "warn",
            text,
            "the others go on by their own clock and subscribe again; see their logs",
        )
    return Check("ticks", "ok", text)


def judge_nodes(nodes: list[NodeView]) -> Iterator[Check]:
    """Fail if no node takes tasks; name the nodes that take none.

    Drained and suspect nodes are easily forgotten.
    """
    taking = [node for node in nodes if node.state == NodeState.UP]
    if not nodes:
        yield Check(
            "nodes",
            "fail",
            "there are none: nothing is placed",
            "start a worker of your app with --parsync",
        )
    elif not taking:
        yield Check(
            "nodes",
            "fail",
            f"none of {len(nodes)} takes tasks: nothing is placed",
            "see the next lines",
        )
    else:
        slots = sum(node.slots for node in taking)
        free = sum(node.free for node in taking)
        yield Check("nodes", "ok", f"{len(taking)} up with {slots} slots, {free} free")
    if down := [node.name for node in nodes if node.state == NodeState.DOWN]:
        yield Check(
            "nodes",
            "warn",
            f"down: {', '.join(down)}",
            "start their workers again; their tasks went elsewhere",
        )
    for node in nodes:
        if node.state == NodeState.SUSPECT:
            yield Check(
                "nodes",
                "warn",
                f"suspect: {node.name}: {node.note}",
                trust_remedy(node.name, node.note),
            )
    for node in nodes:
        if node.capacity_fails and node.state != NodeState.DOWN:
            yield Check(
                "nodes",
                "warn",
                f"the source of the capacity of {node.name} fails: what it said last stands",
                f"the log of the worker of {node.name} says why (--parsync-capacity)",
            )
    if leaving := [node.name for node in nodes if node.state == NodeState.LEAVING]:
        yield Check(
            "nodes", "warn", f"shutting down: {', '.join(leaving)}", "start their workers again"
        )
    drained = (node for node in nodes if node.state == NodeState.DRAINING)
    if draining := [
        node.name for node in drained if has_terms(node.note) or node.leaves_ms is None
    ]:
        yield Check(
            "nodes",
            "warn",
            f"draining: {', '.join(draining)}",
            f"parsync nodes undrain {draining[0]}",
        )


def judge_policy(stored: StoredPolicy, drifted: Sequence[int]) -> Check:
    """Warn if a shard has other ceilings than the document and the apps say.

    A process that applies a policy writes the shards first, so it may have died between.
    """
    name = f"version {stored.version}, by {stored.versions[0].by}" if stored.versions else "none"
    if drifted:
        several = len(drifted) > 1
        numbers = ", ".join(map(str, drifted))
        shards = f"shards {numbers} have" if several else f"shard {numbers} has"
        return Check(
            "policy",
            "warn",
            f"{shards} other ceilings than the document ({name})",
            "the leader writes them by the document; parsync policy apply FILE does it at once",
        )
    counts = f": {len(stored.policy.tenants)} tenants, {len(stored.policy.limits)} limits"
    return Check("policy", "ok", name + (counts if stored.versions else ""))


def judge_declared(
    stored: StoredPolicy, declaring: Mapping[str, Sequence[tuple[str, LimitEntry]]]
) -> Iterator[Check]:
    """Warn of each limit that apps declare differently, such as two versions of one app.

    declaring: (app, entry) by limit. A limit that the policy covers is no trouble.
    """
    for name, apps in declaring.items():
        values = sorted({f"{app} says {entry_text(entry)}" for app, entry in apps})
        if len({entry for _, entry in apps}) > 1 and stored.policy.limit(name) is None:
            yield Check(
                "limits",
                "warn",
                f"limit {name} is declared differently: {'; '.join(values)}; the least counts",
                "let all workers run the same version, or put the limit into the policy",
            )


def judge_quarantine(count: int) -> Check:
    """Warn if damage was put away: the program that wrote the damage may write more."""
    if count:
        return Check(
            "quarantine",
            "warn",
            f"{count} damaged things were put away",
            "parsync doctor quarantine list",
        )
    return Check("quarantine", "ok", "empty")


def judge_audit(facts: list[str]) -> Check:
    """Fail if the audit found a fault. Each fault was there at one moment."""
    if facts:
        text = "; ".join(facts[:5])
        if len(facts) > 5:
            text += f"; and {len(facts) - 5} more"
        return Check(
            "audit",
            "fail",
            text,
            "parsync doctor repair mends what scripts can; please report it: it is damage or a bug",
        )
    return Check("audit", "ok", "every record is as it must be")
