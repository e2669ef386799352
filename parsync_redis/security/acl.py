"""Rights of logins: the commands, keys and channels of each role, and the lines that tell them to
Redis.

A script runs with its caller's rights, so a role has the commands inside the scripts that it runs,
each on just the kinds of key that those scripts touch with it: one selector of an ACL for each
group of kinds (Redis 7.0, Valkey 7.2). So a worker, which must free slots (HDEL), cannot take one
(HSET); a client cannot touch slots at all. Tests hold the tables to the scripts' text.
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
from .acl_operator import OPERATOR
from .acl_tables import (
    AUDIT,
    CLIENT,
    CONNECT,
    KEYLESS,
    KINDS,
    READS,
    SCRIPT_KEYS,
    SPEAKS,
    Kinds,
    Role,
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a role's rights.

    queues: plain Celery queues of the app, to which clients may send what they like; None for the
    worker's `celery`, and no queue for clients: parsync's tasks need none. results: its result
    backend is this server. control: a client may broadcast remote control (revoke). scan: the
    viewer may SCAN, which an audit needs and which shows the names of all keys of the server. db:
    its database. submitters, operators: `parsync serve` lets them in, and may do what they ask for.
    """

    queues: Sequence[str] | None = None
    results: bool = True
    control: bool = False
    scan: bool = False
    db: int = 0
    submitters: bool = False
    operators: bool = False


_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.:@/{}-]{1,128}")  # no glob of an ACL, no space


@dataclass(frozen=True, slots=True)
class Grant:
    """Commands, and the keys (globs) and channels on which they may be used: a selector
    of an ACL.
    """

    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def __str__(self) -> str:
        sign = "%R~" if set(self.commands) <= READS else "~"
        words = [*(sign + key for key in self.keys), *("&" + name for name in self.channels)]
        return " ".join([*words, *("+" + command for command in self.commands)])


def grants(role: Role, cluster: str, options: Options | None = None) -> list[Grant]:
    """Return what a role may do; the first grant is of commands that name no key."""
    options = options or Options()
    keys = Keys(cluster, options.db)
    _check_options(options)
    scan = role is Role.VIEWER and options.scan
    keyless = [*CONNECT.split(), *KEYLESS[role].split(), *(["scan"] if scan else [])]
    tables = [*KINDS[role], *([AUDIT] if scan else [])]
    scripts = SCRIPT_KEYS[role]
    spoken = SPEAKS[role]
    if role is Role.SERVE:
        tables += [
            *([CLIENT] if options.submitters else []),
            *([OPERATOR] if options.operators else []),
        ]
        scripts += " p:*" if options.operators else ""
        spoken = SPEAKS[Role.CLIENT] if options.submitters or options.operators else ""
        spoken += " freed" if options.operators else ""  # of slots that an undrain opens
    found = list(
        _by_commands({keys.pattern(kind): words for kind, words in _merge(tables).items()})
    )
    found.append(Grant(("evalsha", "type"), tuple(keys.pattern(kind) for kind in scripts.split())))
    if heard := [keys.hearing(word) for word in spoken.split()]:
        more = ("ssubscribe",) if role is Role.SCHEDULER else ()
        found.append(Grant(("spublish", *more), (), tuple(heard)))
    if role in (Role.CLIENT, Role.WORKER):
        queues = options.queues
        if queues is None:
            queues = ("celery",) if role is Role.WORKER else ()
        theirs = list(publisher(queues, options.control, options.db))
        theirs += results() if options.results else []
        if role is Role.WORKER:
            theirs += broker(queues, options.db)
        keyless += sorted(
            {word for words, on, to in theirs if not (on or to) for word in words.split()}
            - set(keyless)
        )
        found += [
            Grant(tuple(words.split()), tuple(on), tuple(to))
            for words, on, to in theirs
            if on or to
        ]
    return [Grant(tuple(keyless)), *found]


def user_line(role: Role, cluster: str, sha256: str, options: Options | None = None) -> str:
    """Return the login of a role as Redis takes it: name, state, password hash, rights.

    Without a hash it is off.
    """
    check_name("cluster name", cluster)
    first, *others = grants(role, cluster, options)
    rights = " ".join([str(first), *(f"({grant})" for grant in others)])
    state = f"on #{sha256}" if sha256 else "off"
    return f"{cluster}-{role} {state} resetkeys resetchannels -@all {rights}"


def _check_options(options: Options) -> None:
    for queue in options.queues or ():
        if not _QUEUE_NAME.fullmatch(queue):
            raise InvalidInput(
                f"queue name {shown(queue)} is not valid here: it must be 1 to 128 letters, digits "
                "or _.:@/-"
            )


def _merge(tables: Sequence[Kinds]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for table in tables:
        for kind, words in table.items():
            found.setdefault(kind, set()).update(words.split())
    return {kind: " ".join(sorted(words)) for kind, words in sorted(found.items())}


def _by_commands(kinds: Mapping[str, str]) -> Iterator[Grant]:
    """Give a grant for each set of commands; kinds of key with the same set share it."""
    for words in dict.fromkeys(kinds.values()):
        yield Grant(
            tuple(words.split()), tuple(kind for kind, same in kinds.items() if same == words)
        )
