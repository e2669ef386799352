"""Rights of logins: commands, keys and channels of each role, as Redis's ACL takes them.

A script runs with its caller's rights. So a role has the commands inside the scripts that it runs,
each on just the kinds of key that those scripts touch with it. Each group of kinds is one selector
of an ACL (Redis 7.0, Valkey 7.2). So a worker, which must free slots (HDEL), cannot take a slot
(HSET), and a client cannot touch slots at all. Tests compare the tables with the scripts' text.
docs/security.md says what each login is worth to a thief.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidInput
from ..model.ids import check_name, shown
from ..wire.keys import Keys
from .acl_celery import broker, publisher, results
from .acl_tables import (
    AUDIT_RIGHTS,
    CLIENT_RIGHTS,
    CONNECT_COMMANDS,
    KEYLESS_COMMANDS,
    OPERATOR_RIGHTS,
    READ_COMMANDS,
    RIGHTS_BY_ROLE,
    SCRIPT_KEYS,
    WORDS_SENT,
    CommandsByKind,
    Role,
)


@dataclass(frozen=True, slots=True)
class RightsOptions:
    """Options of a role's rights.

    queues: plain Celery queues of the app, to which clients may send any message; None means the
    worker's `celery`, and no queue for clients, because parsync's tasks need none. results: the
    app's result backend is this server. control: a client may broadcast remote control (revoke).
    scan: the viewer may audit. The audit needs SCAN, which shows the names of all keys of the
    server. db: the number of the database. submitters, operators: `parsync serve` admits submitters
    and operators, and may do what they ask for.
    """

    queues: Sequence[str] | None = None
    results: bool = True
    control: bool = False
    scan: bool = False
    db: int = 0
    submitters: bool = False
    operators: bool = False


_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.:@/{}-]{1,128}")
"""Names of queues without a space or a glob of an ACL."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A selector of an ACL: commands, and the keys (globs) and channels on which they may run."""

    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def __str__(self) -> str:
        sign = "%R~" if set(self.commands) <= READ_COMMANDS else "~"
        words = [*(sign + key for key in self.keys), *("&" + name for name in self.channels)]
        return " ".join([*words, *("+" + command for command in self.commands)])


def grants(role: Role, cluster: str, options: RightsOptions | None = None) -> list[Grant]:
    """Return what a role may do; the first grant has the commands that name no key."""
    options = options or RightsOptions()
    keys = Keys(cluster, options.db)
    _check_options(options)
    keyless = [*CONNECT_COMMANDS.split(), *KEYLESS_COMMANDS[role].split()]
    tables = [*RIGHTS_BY_ROLE[role]]
    script_kinds = SCRIPT_KEYS[role]
    spoken = WORDS_SENT[role]
    if role is Role.VIEWER and options.scan:
        keyless.append("scan")
        tables.append(AUDIT_RIGHTS)
        script_kinds += " p:*"  # the scripts that look at partitions
    if role is Role.SERVE and options.submitters:
        tables.append(CLIENT_RIGHTS)
        spoken = WORDS_SENT[Role.CLIENT]
    if role is Role.SERVE and options.operators:
        tables.append(OPERATOR_RIGHTS)
        spoken = f"{WORDS_SENT[Role.CLIENT]} freed"  # freed: of slots that an undrain opens
        script_kinds += " p:*"
    commands_by_glob = {keys.pattern(kind): words for kind, words in _merge(tables).items()}
    granted = list(_by_commands(commands_by_glob))
    script_globs = tuple(keys.pattern(kind) for kind in script_kinds.split())
    granted.append(Grant(("evalsha", "type"), script_globs))
    if channels := [keys.hearing(word) for word in spoken.split()]:
        subscribing = ("ssubscribe",) if role is Role.SCHEDULER else ()
        granted.append(Grant(("spublish", *subscribing), (), tuple(channels)))
    if role in (Role.CLIENT, Role.WORKER):
        queues = options.queues
        if queues is None:
            queues = ("celery",) if role is Role.WORKER else ()
        celery_rows = list(publisher(queues, options.control, options.db))
        celery_rows += results() if options.results else []
        if role is Role.WORKER:
            celery_rows += broker(queues, options.db)
        celery_keyless = set[str]()
        for words, key_globs, channel_globs in celery_rows:
            commands = tuple(words.split())
            if key_globs or channel_globs:
                granted.append(Grant(commands, tuple(key_globs), tuple(channel_globs)))
            else:
                celery_keyless |= set(commands)
        keyless += sorted(celery_keyless - set(keyless))
    return [Grant(tuple(keyless)), *granted]


def user_line(role: Role, cluster: str, sha256: str, options: RightsOptions | None = None) -> str:
    """Return the login of a role as Redis takes it: name, state, password hash, rights.

    sha256: the hash of the password; '' switches the login off.
    """
    check_name("cluster name", cluster)
    first, *selectors = grants(role, cluster, options)
    rights = " ".join([str(first), *(f"({grant})" for grant in selectors)])
    state = f"on #{sha256}" if sha256 else "off"
    return f"{cluster}-{role} {state} resetkeys resetchannels -@all {rights}"


def _check_options(options: RightsOptions) -> None:
    for queue in options.queues or ():
        if not _QUEUE_NAME.fullmatch(queue):
            raise InvalidInput(
                f"queue name {shown(queue)} is not valid here: it must be 1 to 128 letters, digits "
                "or _.:@/-"
            )


def _merge(tables: Sequence[CommandsByKind]) -> dict[str, str]:
    commands_by_kind: dict[str, set[str]] = {}
    for table in tables:
        for kind, words in table.items():
            commands_by_kind.setdefault(kind, set()).update(words.split())
    return {kind: " ".join(sorted(words)) for kind, words in sorted(commands_by_kind.items())}


def _by_commands(kinds: Mapping[str, str]) -> Iterator[Grant]:
    """Yield a grant for each set of commands, on all kinds of key with that set."""
    for words in dict.fromkeys(kinds.values()):
        yield Grant(
            tuple(words.split()), tuple(kind for kind, same in kinds.items() if same == words)
        )
