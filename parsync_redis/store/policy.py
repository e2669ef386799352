"""The policy of a cluster: read it, change it, and bring the shards in line with it.

The document is in `{C}:policy`. What counts for tasks is in the key `policy` of each shard, and is
written first. If a process dies between, `settle_policy` writes the shards by the document again.

A shard also has the limits that apps declare and that no entry of the document covers. The worker's
`offer` adds them; `settle_policy` compares what several apps declare, and the least counts.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from ..errors import DamagedState, InvalidInput
from ..model.account import pattern_of
from ..model.account_line import Ceiling
from ..model.allotment import divided_ceiling, is_allotment, undivided_ceiling
from ..model.human import age_text
from ..model.ids import readable
from ..model.policy import DECLARED_MARK, LimitEntry, Policy, least_entry
from ..model.policy_document import document_of, find_changes, policy_text, with_value
from ..model.policy_reader import read_policy
from .reads.accounts import read_accounts
from .reads.cancel import server_ms
from .reads.demand import read_lines
from .reads.views import Directory
from .store import Store

log = logging.getLogger("parsync.store")

MAX_VERSIONS_KEPT: Final = 10
"""Number of versions of the policy that people can look up: who, when, and what changed."""

_CHANGES_BYTES: Final = 2000


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A version of the policy: who wrote it, when (server time, ms), and what changed, in words."""

    version: int
    by: str
    at_ms: int
    changes: str


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """The policy as it is stored.

    text: the document as it was written; '' if there is none.
    versions: the last versions, the newest first; () if there is no policy.
    declared: the limits that apps declare, by name or pattern, as the shards have them; {} if they
        were not read.
    """

    policy: Policy
    text: str = ""
    versions: tuple[PolicyVersion, ...] = ()
    declared: Mapping[str, LimitEntry] = field(default_factory=dict)

    @property
    def in_force(self) -> Policy:
        """Return the policy with the limits that apps declare and that no entry of it covers."""
        return self.policy.with_declared(self.declared)

    @property
    def version(self) -> int:
        """Return the number of the version; 0 without a policy."""
        return self.versions[0].version if self.versions else 0


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy for people and programs.

    version: 0 if there is none. text: the document as it was written. tenants, limits: the same as
    values, by name or pattern. history: the last versions, the newest first. declared: the limits
    that apps declare and that no entry of the document covers, by name or pattern; `declared_by`
    has the names of the apps, [] if no worker declares the limit any more.
    """

    version: int
    text: str
    tenants: Mapping[str, Any]
    limits: Mapping[str, Any]
    history: tuple[PolicyVersion, ...]
    declared: Mapping[str, Any]


def view_policy(store: Store) -> PolicyView:
    """Return the policy for people. Raises DamagedState and ServerUnreachable."""
    stored = with_declared(store, stored_policy(store))
    document = document_of(stored.policy)
    in_force = document_of(stored.in_force)["limits"]
    apps = read_declaring(Directory(store)) if stored.declared else {}
    declared = {
        name: {**table, "declared_by": sorted({app for app, _ in apps.get(name, ())})}
        for name, table in in_force.items()
        if name not in document["limits"]
    }
    return PolicyView(
        stored.version,
        stored.text,
        document["tenants"],
        document["limits"],
        stored.versions,
        declared,
    )


def stored_policy(store: Store) -> StoredPolicy:
    """Return the policy of the cluster; an empty one if there is none.

    Raises DamagedState for a document that cannot be read, and ServerUnreachable.
    """
    return _parse(store.hash(store.keys.shared("policy")))


def usual_policy(store: Store) -> StoredPolicy:
    """Return the policy and what apps declare, for people who ask about tasks.

    A damaged document counts as an empty one.
    """
    try:
        stored = stored_policy(store)
    except DamagedState as error:
        log.warning("the policy counts as empty here: %s", error)
        stored = StoredPolicy(Policy())
    return with_declared(store, stored)


def with_declared(store: Store, stored: StoredPolicy) -> StoredPolicy:
    """Return the policy with the limits that apps declare, as the shards have them."""
    rows = [pair for rows in read_rows(store).values() for pair in rows.items()]
    entries: dict[str, list[LimitEntry]] = {}
    for name, text in rows:
        entry = Ceiling.of(text).limit_entry if DECLARED_MARK in text else None
        if entry is not None:
            entries.setdefault(name, []).append(entry)
    return replace(stored, declared={name: least_entry(entries[name]) for name in entries})


def read_declaring(directory: Directory) -> dict[str, list[tuple[str, LimitEntry]]]:
    """Return who declares each limit: the names of apps whose workers nodes have, and the entry."""
    declaring: dict[str, list[tuple[str, LimitEntry]]] = {}
    for app in directory.newest_first():
        for name, entry in app.limits.items():
            declaring.setdefault(name, []).append((app.app, entry))
    return declaring


def _parse(fields: Mapping[str, str]) -> StoredPolicy:
    text = fields.get("text", "")
    try:
        policy = read_policy(text)
    except InvalidInput as error:
        raise DamagedState(
            f"the policy of the cluster is damaged: {error}; apply the document again: parsync "
            "policy apply FILE"
        ) from None
    return StoredPolicy(policy, text, _versions(fields))


def _versions(fields: Mapping[str, str]) -> tuple[PolicyVersion, ...]:
    """Return the versions, the newest first; a damaged history is left out."""
    if not fields.get("version", "").isdecimal():
        return ()
    at_ms = int(fields["at"]) if fields.get("at", "").isdecimal() else 0
    newest = PolicyVersion(
        int(fields["version"]), fields.get("by", ""), at_ms, fields.get("changes", "")
    )
    try:
        history = [PolicyVersion(**entry) for entry in json.loads(fields.get("history", "[]"))]
    except (ValueError, TypeError):
        history = []
    return (newest, *history)[:MAX_VERSIONS_KEPT]


# -- changing --------------------------------------------------------------------------------------


def change_policy(
    store: Store, change: Callable[[StoredPolicy], str], by: str
) -> tuple[StoredPolicy, list[str]]:
    """Change the policy; return the one that counts now, and what has changed, in words.

    change: returns the document from the policy that counts now; raises InvalidInput. by: who
        changes it, for people. If nothing changes, nothing is written.

    Raises InvalidInput if somebody else has changed the policy meanwhile: then the shards have the
    other one's policy.
    """
    before = _read_or_replace(store)
    document = change(before)
    policy = read_policy(document)
    changes = find_changes(before.policy, policy)
    if before.version and not changes and before.text == document:
        settle_policy(store)
        return before, []
    declared = _marked(declared_limits(Directory(store)))
    _write_shards(store, _with_uncovered(dict(policy.rows), declared))
    words = "; ".join(changes) or "no value changes"
    if len(words) > _CHANGES_BYTES:
        words = f"{words[:_CHANGES_BYTES]}..."
    history = json.dumps([asdict(version) for version in before.versions[: MAX_VERSIONS_KEPT - 1]])
    call = store.commands.write_policy(before.version, document, by, words, history)
    written = store.run(call)
    if not written.is_written:
        settle_policy(store)
        at_ms = int(written.when) if written.when.isdecimal() else 0
        raise InvalidInput(
            f"{written.by or 'somebody'} has changed the policy since it was read (version "
            f"{written.version}, {age_text((server_ms(store) - at_ms) / 1000)} ago), so nothing "
            "was changed: look at it with parsync policy show, and try again"
        )
    settle_policy(store)
    return stored_policy(store), changes


def _read_or_replace(store: Store) -> StoredPolicy:
    """Return the policy; a damaged document counts as an empty one, so that it can be replaced."""
    fields = store.hash(store.keys.shared("policy"))
    try:
        return _parse(fields)
    except DamagedState:
        return StoredPolicy(Policy(), "", _versions(fields))


def set_values(assignments: Sequence[str]) -> Callable[[StoredPolicy], str]:
    """Return the `change` that sets values: 'limits.stripe.at_once=3'."""

    def change(stored: StoredPolicy) -> str:
        policy = stored.policy
        for assignment in assignments:
            policy = with_value(policy, assignment)
        return policy_text(policy) if policy != stored.policy else stored.text

    return change


# -- the shards ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences between the ceilings of the shards and those that they should have.

    version: of the policy, 0 without one. shards: those whose ceilings differ. undeclared: limits
    that no app declares any more, that no task holds and under which none waits. policy: of that
    version.
    """

    version: int
    shards: Sequence[int]
    undeclared: Sequence[str]
    policy: Policy = field(default=Policy(), compare=False)


def settle_policy(store: Store) -> list[int]:
    """Bring the shards in line with the document and the apps; return the shards that differed.

    A repeated call changes nothing. Without a document the ceilings that no app declares stay as
    they are: the document may be lost, and a first one is written after the shards. Raises
    DamagedState for a document that cannot be read.
    """
    drift = find_drift(store)
    mend_drift(store, drift)
    return [*drift.shards]


def find_drift(store: Store, directory: Directory | None = None) -> Drift:
    """Return what the shards have other than they should. directory: read before, if any."""
    stored = stored_policy(store)
    rows_by_shard = read_rows(store)
    declared = declared_limits(directory or Directory(store))
    shards = [
        shard
        for shard, rows in rows_by_shard.items()
        if rows != ceilings_of_shard(stored, declared, rows)
    ]
    undeclared = _undeclared(store, declared, rows_by_shard)
    return Drift(stored.version, shards, undeclared, stored.policy)


def mend_drift(store: Store, drift: Drift) -> None:
    """Write the shards that differ, and let limits go that no app declares any more.

    Each shard judges whether a limit may go: a worker may declare the limit meanwhile.
    """
    if drift.shards:
        stored = stored_policy(store)
        declared = declared_limits(Directory(store))
        rows_by_shard = read_rows(store)
        for shard in drift.shards:
            if shard in rows_by_shard:
                rows = ceilings_of_shard(stored, declared, rows_by_shard[shard])
                _write_shards(store, rows, [shard])
    if drift.undeclared:
        shards = range(store.keys.shards)
        store.run_all([store.commands.remove_declared(drift.undeclared, shard) for shard in shards])


def ceilings_of_shard(
    stored: StoredPolicy, declared: Mapping[str, LimitEntry], rows: Mapping[str, str]
) -> dict[str, str]:
    """Return the ceilings that a shard should have.

    declared: the limits that apps declare now. rows: the ceilings that the shard has. A limit that
    no app declares any more stays.
    """
    base = dict(stored.policy.rows)
    if not stored.version:
        base = {
            name: text
            for name, text in rows.items()
            if DECLARED_MARK not in text and (Ceiling.of(text).amounts or _is_ceiling(text))
        }
    marked = {
        name: text for name, text in rows.items() if DECLARED_MARK in text and _is_ceiling(text)
    }
    return _with_uncovered(base, {**marked, **_marked(declared)})


def _is_ceiling(text: str) -> bool:
    return Ceiling.of(text).limit_entry is not None


def _marked(declared: Mapping[str, LimitEntry]) -> dict[str, str]:
    return {name: entry.ceiling + DECLARED_MARK for name, entry in declared.items()}


def _with_uncovered(base: Mapping[str, str], marked: Mapping[str, str]) -> dict[str, str]:
    """Return the ceilings of the policy, and the declared ones that no entry of it covers."""
    uncovered = {
        name: text for name, text in marked.items() if not {name, pattern_of(name)} & base.keys()
    }
    return {**uncovered, **base}


def declared_limits(directory: Directory) -> dict[str, LimitEntry]:
    """Return the least that the apps declare of each limit."""
    return {
        name: least_entry(entry for _, entry in apps)
        for name, apps in read_declaring(directory).items()
    }


def _undeclared(
    store: Store,
    declared: Mapping[str, LimitEntry],
    rows_by_shard: Mapping[int, Mapping[str, str]],
) -> list[str]:
    """Return the limits that no app declares any more, and that no task holds or waits under."""
    names = {
        name
        for rows in rows_by_shard.values()
        for name, text in rows.items()
        if DECLARED_MARK in text and name not in declared
    }
    if not names or len(rows_by_shard) < store.keys.shards:
        return []
    reading = read_accounts(store, [*read_lines(store)])
    accounts = {name for name, line in reading.lines.items() if line.count or line.is_damaged}
    used = {
        entry for name in accounts | reading.waiting.keys() for entry in (name, pattern_of(name))
    }
    return sorted(names - used)


def read_rows(store: Store) -> dict[int, dict[str, str]]:
    """Return the ceilings by account or pattern of each shard whose server answers.

    The ceilings are as the document has them; one that is divided among another number of shards
    says the number.
    """
    shards = store.keys.shards
    reads = {shard: [("hgetall", key)] for shard, key in enumerate(store.keys.queues("policy"))}
    return {
        shard: {
            readable(name): undivided_ceiling(readable(text), shards)
            for name, text in fields.items()
            if not is_allotment(name)
        }
        for shard, (fields,) in store.pipe_live("shard", reads).items()
    }


def _write_shards(
    store: Store, ceilings: Mapping[str, str], shards: Sequence[int] | None = None
) -> None:
    numbers = range(store.keys.shards) if shards is None else shards
    rows = [
        (name, divided_ceiling(text, store.keys.shards)) for name, text in sorted(ceilings.items())
    ]
    calls: list[Any] = [store.commands.set_policy(rows, shard) for shard in numbers]
    store.run_all(calls)
