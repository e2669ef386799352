"""The policy of a cluster: read it, change it, and bring the shards in line with it.

The document is in `{C}:policy`. What counts for tasks is in the key `policy` of each shard, and is
written first. If a process dies between, `settle_policy` writes the shards by the document again.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..errors import DamagedState, InvalidInput
from ..model.allotment import divided_ceiling, is_allotment, undivided_ceiling
from ..model.human import age_text
from ..model.ids import readable
from ..model.policy import Policy
from ..model.policy_document import document_of, find_changes, policy_text, with_value
from ..model.policy_reader import read_policy
from .reads.cancel import server_ms
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
    """

    policy: Policy
    text: str = ""
    versions: tuple[PolicyVersion, ...] = ()

    @property
    def version(self) -> int:
        """Return the number of the version; 0 without a policy."""
        return self.versions[0].version if self.versions else 0


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy for people and programs.

    version: 0 if there is none. text: the document as it was written. tenants, limits: the same as
    values, by name or pattern. history: the last versions, the newest first.
    """

    version: int
    text: str
    tenants: Mapping[str, Any]
    limits: Mapping[str, Any]
    history: tuple[PolicyVersion, ...]


def view_policy(store: Store) -> PolicyView:
    """Return the policy for people. Raises DamagedState and ServerUnreachable."""
    stored = stored_policy(store)
    document = document_of(stored.policy)
    return PolicyView(
        stored.version, stored.text, document["tenants"], document["limits"], stored.versions
    )


def stored_policy(store: Store) -> StoredPolicy:
    """Return the policy of the cluster; an empty one if there is none.

    Raises DamagedState for a document that cannot be read, and ServerUnreachable.
    """
    return _parse(store.hash(store.keys.shared("policy")))


def usual_policy(store: Store) -> StoredPolicy:
    """Return the policy for people who ask about tasks; an empty one if it is damaged."""
    try:
        return stored_policy(store)
    except DamagedState as error:
        log.warning("the policy counts as empty here: %s", error)
        return StoredPolicy(Policy())


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
    _write_shards(store, policy)
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


def settle_policy(store: Store) -> list[int]:
    """Bring the shards in line with the document; return the shards that differed.

    A repeated call changes nothing. Without a document the shards stay as they are: it may be
    lost, and a first one is written after the shards. Raises DamagedState for a document that
    cannot be read.
    """
    stored = stored_policy(store)
    if not stored.version:
        return []
    drifted = _drifted(store, stored.policy)
    _write_shards(store, stored.policy, drifted)
    return drifted


def find_drift(store: Store) -> tuple[StoredPolicy, list[int]]:
    """Return the policy, and the shards whose rows differ from the document."""
    stored = stored_policy(store)
    return stored, _drifted(store, stored.policy) if stored.version else []


def _drifted(store: Store, policy: Policy) -> list[int]:
    rows_by_shard = read_rows(store)
    return [shard for shard, rows in rows_by_shard.items() if rows != dict(policy.rows)]


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


def _write_shards(store: Store, policy: Policy, shards: Sequence[int] | None = None) -> None:
    numbers = range(store.keys.shards) if shards is None else shards
    rows = [(name, divided_ceiling(text, store.keys.shards)) for name, text in policy.rows]
    calls: list[Any] = [store.commands.set_policy(rows, shard) for shard in numbers]
    store.run_all(calls)
