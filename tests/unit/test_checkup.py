"""The doctor's judgement of each finding."""

from dataclasses import replace

import pytest

from parsync_redis.cli.node_page import print_node
from parsync_redis.inspect import checkup, primary_checks, server_checks
from parsync_redis.inspect.node_detail import NodeDetail
from parsync_redis.model.node import trial_note
from parsync_redis.model.views import NodeView
from parsync_redis.store.reads.schedulers import Refusal, SchedulerView, ranges


def levels(checks):
    return [(check.name, check.level) for check in checks]


def scheduler(name, alive, leader=False):
    return SchedulerView(name, 0, leader, 1, {}, 0.5 if alive else 60.0, alive)


def node(name, state="up", draining=False):
    return NodeView(name, 0, state, draining, 1, 1.0, 4, 4, 0, {}, {}, {})


@pytest.mark.parametrize(
    ("info", "save", "level"),
    [
        ({"aof_enabled": 1}, "", "ok"),
        ({"aof_enabled": 0}, "3600 1", "warn"),
        ({"aof_enabled": 0}, "", "warn"),
        ({"aof_enabled": 0}, None, "warn"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, "", "fail"),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, "3600 1", "fail"),
    ],
)
def test_persistence(info, save, level):
    check = server_checks.judge_persistence(info, None if save is None else {"save": save})
    assert check.level == level
    assert bool(check.repair) == (level != "ok")


@pytest.mark.parametrize(
    ("used", "limit", "level"), [(10, 0, "ok"), (79, 100, "ok"), (81, 100, "warn")]
)
def test_memory(used, limit, level):
    assert server_checks.judge_memory({"used_memory": used, "maxmemory": limit}).level == level


def test_the_allocator_is_named():
    assert (
        server_checks.judge_allocator({"mem_allocator": "jemalloc-5.3.0"}).text == "jemalloc-5.3.0"
    )
    assert "jemalloc takes" in server_checks.judge_allocator({"mem_allocator": "libc"}).text


SMALL = {"zset-max-listpack-entries": "8", "hash-max-listpack-entries": "32"}


@pytest.mark.parametrize(
    ("there", "level", "says"),
    [
        (SMALL, "ok", "zset-max-listpack-entries 8, hash-max-listpack-entries 32"),
        ({**SMALL, "hash-max-listpack-entries": "512"}, "warn", "hash-max-listpack-entries 512"),
        ({**SMALL, "zset-max-listpack-entries": "128"}, "warn", "zset-max-listpack-entries 128"),
        (None, "ok", "the server does not tell this login its settings"),
        ({}, "ok", "no such settings"),
    ],
)
def test_a_server_that_searches_long_lists_is_a_warning(there, level, says):
    check = server_checks.judge_lists(there)
    assert (check.level, says in check.text) == (level, True), check
    command = "redis-cli CONFIG SET zset-max-listpack-entries 8 hash-max-listpack-entries 32"
    assert (command in check.repair) == (level == "warn")


def test_a_replica_fails():
    assert server_checks.judge_role({"role": "slave"}).level == "fail"
    assert server_checks.judge_role({"role": "master"}).level == "ok"


def test_scripts_that_are_not_loaded_yet_are_no_fault():
    check = checkup.judge_scripts([True, False])
    assert (check.level, check.text) == (
        "ok",
        "1 of 2 loaded; a scheduler or a worker loads the others",
    )
    assert checkup.judge_scripts([True], "h1:6379: ").text == "h1:6379: 1 of 1 loaded"


@pytest.mark.parametrize(
    ("alive", "still", "leader", "expected"),
    [
        (["a", "b"], [], "a", [("schedulers", "ok"), ("leader", "ok")]),
        (["a"], ["b"], "b", [("schedulers", "ok"), ("schedulers", "warn"), ("leader", "warn")]),
        ([], ["b"], "b", [("schedulers", "fail"), ("schedulers", "warn")]),
        ([], [], "", [("schedulers", "fail")]),
    ],
)
def test_schedulers_and_leader(alive, still, leader, expected):
    there = [scheduler(name, name in alive, name == leader) for name in (*alive, *still)]
    assert levels(checkup.judge_schedulers(there)) == expected


def test_silent_schedulers_are_not_reported_while_the_server_takes_no_writes():
    refusal = Refusal("the server at h:1 takes no writes: its memory is full", "more memory", "h:1")
    (check,) = checkup.judge_writes([refusal], of_a_part="warn")
    assert (check.level, check.text, check.repair) == (
        "fail",
        f"{refusal.why}: nothing is placed",
        "more memory",
    )
    assert levels(checkup.judge_writes([])) == [("writes", "ok")]
    assert levels(checkup.judge_schedulers([scheduler("a", False)], [refusal])) == [
        ("schedulers", "warn")
    ]
    assert levels(checkup.judge_schedulers([scheduler("a", True, True)], [refusal])) == [
        ("schedulers", "ok"),
        ("leader", "ok"),
    ]


def test_silence_means_death_while_only_a_primary_with_other_keys_takes_no_writes():
    refusal = Refusal(
        "the server at h:1 takes no writes: its memory is full",
        "more memory",
        "h:1",
        "shards 1",
        False,
    )
    (check,) = checkup.judge_writes([refusal], of_a_part="warn")
    assert (check.level, check.text) == ("warn", f"{refusal.why}: shards 1 stand still")
    assert levels(checkup.judge_writes([refusal])) == [("writes", "fail")]
    silent = checkup.judge_schedulers([scheduler("a", False)], [refusal])
    assert levels(silent) == [("schedulers", "fail"), ("schedulers", "warn")]


@pytest.mark.parametrize(
    ("note", "repair"),
    [
        (
            trial_note("tasks fail there at once", 30),
            "mend why tasks fail on a (parsync events --event failed --node a), then parsync "
            "nodes undrain a",
        ),
        (
            "its worker stands still: it is stopped",
            "restart the worker of node a, or end what blocks it: its log says where",
        ),
        ("alive, but 3 tasks in a row did not start there", "parsync nodes undrain a"),
    ],
)
def test_the_repair_of_a_suspect_node_is_that_of_its_cause(note, repair):
    found = list(checkup.judge_nodes([replace(node("a", "suspect"), note=note), node("b")]))
    assert (found[-1].text, found[-1].repair) == (f"suspect: a: {note}", repair)


def test_a_scheduler_that_does_not_hear_ticks_is_a_warning():
    assert checkup.judge_subscribers(1, 2).level == "warn"
    assert checkup.judge_subscribers(2, 2).level == "ok"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], [("nodes", "fail")]),
        ([node("a")], [("nodes", "ok")]),
        ([node("a"), node("b", "down")], [("nodes", "ok"), ("nodes", "warn")]),
        ([node("a", "suspect")], [("nodes", "fail"), ("nodes", "warn")]),
        ([node("a", "leaving")], [("nodes", "fail"), ("nodes", "warn")]),
        ([node("a", "draining", True)], [("nodes", "fail"), ("nodes", "warn")]),
        ([node("a"), node("b", "draining", True)], [("nodes", "ok"), ("nodes", "warn")]),
    ],
)
def test_nodes(nodes, expected):
    assert levels(checkup.judge_nodes(nodes)) == expected


def test_a_shrunk_node_whose_notice_is_over_is_not_drained_by_an_operator(capsys):
    shrunk = replace(node("b", "draining", True), note="gives 6 of its 10 slots now", leaves_ms=1)
    assert levels(checkup.judge_nodes([node("a"), shrunk])) == [("nodes", "ok")]
    print_node(NodeDetail(shrunk, 2, (), (), (), ""))
    page = capsys.readouterr().out
    assert "state:     draining: gives 6 of its 10 slots now\n" in page
    drained = replace(shrunk, note="over deadline_s=60: a new disk")
    assert levels(checkup.judge_nodes([node("a"), drained])) == [("nodes", "ok"), ("nodes", "warn")]
    print_node(NodeDetail(drained, 2, (), (), (), ""))
    page = capsys.readouterr().out
    assert "draining, deadline 1m after it began, which has passed: a new disk\n" in page


def test_a_finding_of_the_audit_fails_the_check_up():
    assert checkup.judge_audit([]).level == "ok"
    check = checkup.judge_audit([f"fact {i}" for i in range(7)])
    assert check.level == "fail"
    assert check.text.endswith("fact 4; and 2 more")


# -- the primaries of a Redis Cluster --------------------------------------------------------------

WELL = {"cluster-require-full-coverage": "no", "cluster-node-timeout": "5000"}
REPLICA = {"ip": "h2", "port": 6379, "state": "online", "offset": 900, "lag": 0}
INFO = {"connected_slaves": 1, "slave0": REPLICA, "master_repl_offset": 1000}


@pytest.mark.parametrize(
    ("info", "settings", "says"),
    [
        (INFO, WELL, ""),
        (INFO, None, ""),
        ({"connected_slaves": 0}, WELL, "it has no replica"),
        ({**INFO, "slave0": {**REPLICA, "lag": 12}}, WELL, "its replica h2:6379 is 12 s behind"),
        (
            {**INFO, "slave0": {**REPLICA, "state": "wait_bgsave"}},
            WELL,
            "its replica h2:6379 is not online: wait_bgsave",
        ),
        ({**INFO, "master_repl_offset": 9 << 20}, WELL, "its replica h2:6379 lacks 9.0 MiB"),
        (
            INFO,
            {**WELL, "cluster-require-full-coverage": "yes"},
            "all primaries refuse requests while one is away",
        ),
        (INFO, {**WELL, "cluster-node-timeout": "15000"}, "after 15 s"),
    ],
)
def test_each_defect_of_a_primary_has_a_fix(info, settings, says):
    checks = list(primary_checks.judge_primary("h1:6379", info, settings))
    assert [(check.level, says in check.text, bool(check.repair)) for check in checks] == (
        [("warn", True, True)] if says else []
    )


@pytest.mark.parametrize(
    ("clocks", "warned"),
    [
        ({}, []),
        ({"h1:1": (-9.0, -9.0)}, []),
        ({"h1:1": (0.0, 0.01), "h2:1": (0.2, 0.21)}, []),
        ({"h1:1": (0.0, 0.01), "h2:1": (0.3, 0.31), "h3:1": (0.1, 0.1)}, ["h2:1"]),
        ({"h1:1": (0.0, 0.2), "h2:1": (0.4, 0.6)}, []),  # its answer may have taken that long
        ({"h1:1": (0.0, 0.0), "h2:1": (-9.0, -9.0), "h3:1": (5.0, 5.0)}, ["h1:1", "h3:1"]),
    ],
)
def test_a_primary_whose_clock_is_half_a_gap_ahead_is_named(clocks, warned):
    checks = list(primary_checks.judge_clocks(clocks, 0.5))
    assert [check.text.split(": its clock is ")[0] for check in checks] == warned
    assert all(check.level == "warn" and check.repair for check in checks)


def test_the_tags_of_a_primary_are_told_in_short():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2 5 7-8"
    assert ranges([]) == "none"
