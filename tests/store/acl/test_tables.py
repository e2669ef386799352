"""The tables of rights are what the scripts and Python need, no more: held to the scripts' text."""

import re

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.security.acl import RightsOptions, grants, user_line
from parsync_redis.security.acl_tables import (
    AUDIT_RIGHTS,
    AUDIT_SCRIPTS,
    CLIENT_RIGHTS,
    OPERATOR_RIGHTS,
    READ_COMMANDS,
    RIGHTS_BY_ROLE,
    SCHEDULER_RIGHTS,
    SCRIPTS_BY_ROLE,
    VIEW_RIGHTS,
    VIEWER_RIGHTS,
    WORKER_RIGHTS,
    Role,
)
from tests.kit import needs

DIRECT = {
    Role.VIEWER: {
        **dict.fromkeys((":*", "p:*", "q:*"), "ttl"),
        "p:inbox": "exists",
        "p:nodes": "hgetall hmget",
        "p:slots": "hmget",
        "q:accounts": "hscan",
        "q:changed": "zscan",
        "q:dead": "zmscore",
        **dict.fromkeys(("q:ended", "q:ended_1", "q:ended_2"), "hmget"),
        "q:extra": "hmget",
        "q:kinds": "hscan",
        "q:pending": "zcard",
        "q:running": "hmget hscan",
        "q:taken": "hmget",
        "q:tasks": "hmget hscan",
    },
    Role.CLIENT: {
        "q:apps": "zrevrange",
        "q:names": "hmget",
        "q:shapes": "hgetall",
        "q:outbox": "lpush lrem",
        "q:changed": "zadd",
        "q:messages": "hget",
        "q:meta": "hmget",
    },
    Role.WORKER: {
        "p:inbox": "blmpop",
        "q:apps": "zscore",
        "q:later": "zrange",
        "q:messages": "hmget",
        "q:names": "hexists",
        "q:outbox": "lrange",
    },
    Role.SCHEDULER: {
        ":times": "hmget",
        "q:accounts": "hscan",
        "p:meta": "hget",
        "p:nodes": "hexists hgetall",
        "p:alive": "hgetall",
        "p:lost": "smembers",
        "p:slots": "hget hscan",
        "p:inbox": "llen",
        "q:kinds": "hget hscan",
        "q:changed": "zscan zscore",
        "q:later": "zrange zscan",
        "q:meta": "hget",
        "q:apps": "zrevrange",
        "q:feasible": "hgetall",
        "q:names": "hgetall hmget",
        "q:shapes": "hgetall",
        "q:pending": "zcard zrange zscan",
        "q:taken": "hmget hscan",
        "q:running": "hscan",
        **dict.fromkeys(("q:ended", "q:ended_1", "q:ended_2"), "hscan"),
    },
}
"""Commands that Python itself sends, besides VIEW_RIGHTS, also in a viewer's audit."""

LISTED = {
    Role.CLIENT: (VIEW_RIGHTS, CLIENT_RIGHTS),
    Role.WORKER: (VIEW_RIGHTS, CLIENT_RIGHTS, WORKER_RIGHTS),
    Role.SCHEDULER: (VIEW_RIGHTS, SCHEDULER_RIGHTS),
}


def pairs(*tables):
    return {
        (word, kind) for table in tables for kind, words in table.items() for word in words.split()
    }


def by_scripts(role):
    found = {
        use for verb in SCRIPTS_BY_ROLE[role].split() for use in needs.uses(needs.SCRIPTS[verb])
    }
    return {(command, kind) for command, kind in found if ":" in kind}


@pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER, Role.SCHEDULER])
def test_a_roles_key_rights_equal_what_its_scripts_and_python_use(role):
    own = by_scripts(role) | pairs(DIRECT[role], VIEW_RIGHTS)
    own |= by_scripts(Role.CLIENT) | pairs(DIRECT[Role.CLIENT]) if role is Role.WORKER else set()
    allowed = pairs(*LISTED[role])
    assert not sorted(own - allowed), "add to security/acl_tables.py what a script needs now"
    assert not sorted(allowed - own), "take out of security/acl_tables.py what nothing needs"


def test_a_viewer_that_audits_may_read_what_the_scripts_that_look_read_and_no_more():
    uses = {use for verb in AUDIT_SCRIPTS.split() for use in needs.uses(needs.SCRIPTS[verb])}
    own = {(word, kind) for word, kind in uses if word in READ_COMMANDS and ":" in kind}
    own.remove(("hscan", "q:messages"))  # an audit counts messages
    assert pairs(AUDIT_RIGHTS) == own | pairs(DIRECT[Role.VIEWER])


def test_the_operator_rights_of_serve_equal_what_their_scripts_use():
    verbs = "cancel read_tasks revive set_node"
    own = {
        use for verb in verbs.split() for use in needs.uses(needs.SCRIPTS[verb]) if ":" in use[1]
    } | pairs(VIEW_RIGHTS)
    own |= {("hexists", "p:nodes")}  # Python looks for the node
    assert own == pairs(VIEW_RIGHTS, OPERATOR_RIGHTS)
    assert {*SCRIPTS_BY_ROLE[Role.SERVE].split()} == {
        *verbs.split(),
        *SCRIPTS_BY_ROLE[Role.CLIENT].split(),
    }


def test_the_rights_of_serve_follow_its_flags():
    def rights(**flags):
        granted = grants(Role.SERVE, "c", RightsOptions(**flags))
        return {
            (word, key)
            for grant in granted
            for word in grant.commands
            for key in (*grant.keys, *grant.channels)
        }

    viewer = {
        (word, key)
        for grant in grants(Role.VIEWER, "c")
        for word in grant.commands
        for key in grant.keys
    }
    submits = rights(submitters=True)
    operates = rights(operators=True)
    both = rights(submitters=True, operators=True)
    assert rights() == viewer
    assert ("hset", "parsync:{c:q*}:messages") in submits - operates
    assert ("hset", "parsync:{c:p*}:nodes") in operates - submits
    assert both == submits | operates
    others = {
        (word, key)
        for role in (Role.VIEWER, Role.CLIENT, Role.SCHEDULER)
        for grant in grants(role, "c")
        for word in grant.commands
        for key in (*grant.keys, *grant.channels)
    }
    assert both <= others


def test_every_script_belongs_to_a_role():
    assert {verb for words in SCRIPTS_BY_ROLE.values() for verb in words.split()} == set(
        needs.SCRIPTS
    )


def test_the_reader_of_scripts_sees_calls_in_libraries_and_none_that_are_not_called():
    assert ("zadd", "q:pending") in needs.uses(needs.SCRIPTS["requeue"])
    assert ("spublish", "channel") not in needs.uses(needs.SCRIPTS["start"])
    assert ("sadd", "p:lost") in needs.uses(needs.SCRIPTS["reclaim"])


def test_the_viewer_has_no_command_that_writes_and_none_that_brings_lua():
    words = {
        command
        for grant in grants(Role.VIEWER, "c", RightsOptions(scan=True))
        for command in grant.commands
    }
    writing = {"hset", "hdel", "del", "set", "lpush", "zadd", "spublish", "eval", "script|load"}
    assert not words & writing
    assert pairs(VIEW_RIGHTS, VIEWER_RIGHTS, AUDIT_RIGHTS) >= {
        ("hgetall", ":config"),
        ("ttl", "q:*"),
    }
    assert RIGHTS_BY_ROLE[Role.VIEWER] == (VIEW_RIGHTS, VIEWER_RIGHTS)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(
    "options",
    [
        RightsOptions(),
        RightsOptions((), results=False),
        RightsOptions(control=True, scan=True, db=7),
    ],
)
def test_no_role_has_all_of_anything(role, options):
    line = user_line(role, "c", "0" * 64, options)
    assert not re.search(r"\+@|allkeys|allcommands|allchannels|nopass|[~&]\*[ )]", line)
    for word in re.findall(r"[~&]([^ )]+)", line):
        celery = re.match(r"celery|_kombu|unacked|\*\.(reply\.)?celery\.pidbox|/\d+\.celery", word)
        assert word.startswith(("parsync:{c}:", "parsync:{c:q*}:", "parsync:{c:p*}:")) or celery, (
            word
        )
    assert "+eval " not in line


@pytest.mark.parametrize("queue", ["", "*", "a b", "a?", "a[b]", "a)", "x\n", "a~b"])
def test_a_queue_name_that_would_widen_the_rights_is_refused(queue):
    with pytest.raises(InvalidInput, match="queue name"):
        user_line(Role.WORKER, "c", "", RightsOptions((queue,)))


def test_a_login_without_a_password_is_off():
    assert user_line(Role.VIEWER, "c", "").startswith("c-viewer off resetkeys")
