"""More planted bugs, of kinds that tests/chaos/mutants.py lacks.

The kinds: limits of batches, secondary fields and indexes, versions, the order of the queue,
waiting seats, drains, requests that name an earlier state, generations of ended tasks, wake-ups,
clocks, successors, the wrong shard or partition, another server, and what must be read again.
"""

from __future__ import annotations

from .mutant import Mutant

_EX = "parsync_redis.worker"
_SC = "parsync_redis.scheduler"
PLANTED_BY_OTHERS = (
    Mutant(
        "release ignores the incarnation",
        "verbs/release",
        "if leases[i] ~= text or",
        "if not leases[i] or string.gsub(leases[i], ' inc=%d+', '') ~= string.gsub(text, ' "
        "inc=%d+', '') or",
        harmless="an attempt is never placed twice on one slot; the ghost checks it",
    ),
    Mutant(
        "reclaim ignores the incarnation",
        "verbs/reclaim",
        "if lease.leads and (node.state == 'down' or lease.inc ~= node.inc) then",
        "if lease.leads then",
    ),
    Mutant(
        "give_back ignores the attempt",
        "verbs/give_back",
        "(attempt == '' or attempt == task.attempt)",
        "true",
        found_by="tests/store/lua/test_take.py::test_give_back_is_fenced_by_scheduler_and_attempt",
    ),
    Mutant(
        "expire cancels placed tasks",
        "verbs/expire",
        "if task.run or task.extra.next",
        "if task.extra.next",
    ),
    Mutant(
        "a member's counter begins at 0",
        "verbs/renew_scheduler",
        "string.format('%d', epoch * 1e8)",
        "'0'",
    ),
    Mutant(
        "the table of runs compares first slots",
        f"{_EX}.node.runs:Runs.enter",
        "not seats.isdisjoint(present.place.slots)",
        "run.place.slot == present.place.slot",
        found_by="tests/unit/test_runs.py::test_a_run_in_several_slots_is_not_entered_while_another_goes_on_in_any_of_them",
    ),
)
OTHER_KINDS = (
    Mutant(
        "a full limit has room",
        "lib/kind/room",
        "room = math.min(room, room_in(share.name, share.asked, limit))",
        "room_in(share.name, share.asked, limit)",
    ),
    Mutant(
        "who goes back still counts",
        "lib/kind/accounts",
        "leaving[#leaving + 1] = ids",
        "leaving[#leaving + 1] = undone and {} or ids",
    ),
    Mutant(
        "who is no holder leaves as well",
        "lib/kind/changing",
        "account.count = math.max(0, account.count - removed)",
        "account.count = math.max(0, account.count - removed - 1)",
    ),
    Mutant(
        "as many changes as asked for are all",
        "lib/kind/changes",
        "if #names >= tonumber(limit)",
        "if #names > tonumber(limit)",
    ),
    Mutant(
        "release keeps the amounts",
        "verbs/release",
        "    in_full().write_ledgers(left, changed, version)\n",
        "",
    ),
    Mutant(
        "reclaim lists no node as lost",
        "verbs/reclaim",
        "redis.call(has_lost and 'SADD' or 'SREM',",
        "redis.call('SREM',",
    ),
    Mutant(
        "a claim makes no version",
        "verbs/commit",
        "version = (version or 0) + 1",
        "version = (version or 0)",
    ),
    Mutant(
        "opened seats make no version",
        "lib/node/free_bits",
        "local version = redis.call('HINCRBY', meta, 'version', 1)",
        "local version = redis.call('HGET', meta, 'version')",
    ),
    Mutant(
        "shut seats take claims",
        "lib/node/record",
        "slot < node.slots + (node.ahead or 0)",
        "slot < node.span",
    ),
    Mutant(
        "the last in the queue starts first",
        "lib/task/start_order",
        "orders[a] < orders[b] or",
        "orders[a] > orders[b] or",
        found_by="tests/store/lua/test_ahead.py::test_the_first_in_the_queues_order_starts_and_the_others_wait",
    ),
    Mutant(
        "a drain that is over ends nothing",
        f"{_EX}.node.renewer:Renewer._take",
        'report.drain == "2"',
        'report.drain == "3"',
    ),
    Mutant(
        "another drain's end is this one's",
        "verbs/set_node",
        "node.drain == '1' and old_note == note then",
        "node.drain == '1' then",
    ),
    Mutant(
        "set_node ignores the incarnation",
        "verbs/set_node",
        "or (args.inc ~= '' and args.inc ~= node.inc)",
        "",
    ),
    Mutant(
        "rotate moves the newest first",
        "verbs/rotate",
        "  if redis.call('EXISTS', ended_1) == 1 then\n    redis.call('RENAME', ended_1, "
        "ended_2)\n  end\n  if redis.call('EXISTS', ended) == 1 then\n    redis.call('RENAME', "
        "ended, ended_1)\n  end",
        "  if redis.call('EXISTS', ended) == 1 then\n    redis.call('RENAME', ended, ended_1)\n  "
        "end\n  if redis.call('EXISTS', ended_1) == 1 then\n    redis.call('RENAME', ended_1, "
        "ended_2)\n  end",
        found_by="tests/store/lua/test_ended.py::test_a_task_that_has_ended_is_forgotten_with_its_generation",
    ),
    Mutant(
        "submit forgets what ended earlier",
        "verbs/submit",
        "ended_now[i] or ended_before[i] or ended_first[i]",
        "ended_now[i] or ended_first[i]",
    ),
    Mutant(
        "submit wakes nobody",
        "verbs/submit",
        "    wake(args.channel, meta)\n",
        "",
        harmless="schedulers look in each gap",
        found_by="tests/store/lua/test_submit.py::test_the_first_task_of_a_kind_wakes_one_scheduler",
    ),
    Mutant(
        "the leader judges by the wall clock",
        f"{_SC}.leader.janitor:LeaderWork.work",
        "self._janitor.work(time.monotonic,",
        "self._janitor.work(time.time,",
    ),
    Mutant(
        "a lost run's successor stays",
        "lib/task/transitions",
        "if task.extra.next and not others_published(task.extra.next) then",
        "if false then",
    ),
    Mutant(
        "a run replaces what others published",
        "lib/task/resubmission",
        "if not (options.after and task.extra.next and others_published(task.extra.next)) then",
        "if true then",
    ),
    Mutant(
        "orphans of one shard only",
        f"{_SC}.leader.schedulers:SchedulerDuty.work",
        'enumerate(self._store.keys.queues("taken"))',
        'enumerate(self._store.keys.queues("taken")[:1])',
        shards=2,
    ),
    Mutant(
        "slots are freed in one partition only",
        f"{_EX}.node.reporter:Reporter._report",
        "places.setdefault(run.place.partition, [])",
        "places.setdefault(0, [])",
    ),
    Mutant(
        "another primary's copy is believed",
        f"{_SC}.process.loop:Scheduler._on_rank",
        "if name and self._rank.servers.get(name) != run_id:",
        "if False:",
        shards=2,
        found_by="tests/unit/test_strays.py::test_a_shard_is_read_anew_if_another_server_has_it",
    ),
    Mutant(
        "a lost claim has nothing read again",
        f"{_SC}.core.core:Core.on_judged",
        "freshness.to_read.add(judged.partition)",
        "pass",
        harmless="ticks have it read",
        found_by="tests/unit/test_freshness.py::test_after_a_lost_claim_a_partition_is_read_before_the_next_claim_there",
    ),
    Mutant(
        "changed nodes are not read again",
        f"{_SC}.core.core:Core.on_judged",
        "if changed:\n        self._on_changed(partition)",
        "pass",
        harmless="the next snapshot tells the epoch",
        found_by="tests/unit/test_core.py::test_a_changed_node_is_read_again_before_it_is_claimed_again",
    ),
)
"""Bugs that were drawn before anybody knew which of them schedules find."""
FENCES = (
    Mutant(
        "the locks are released before the run",
        f"{_EX}.celery.isolated_pool:run_isolated",
        "stack.enter_context(\n                    hold(isolation.lock_file, isolation.slots, isolation.one_at_a_time)\n                )",
        "with hold(isolation.lock_file, isolation.slots, isolation.one_at_a_time): pass",
        found_by="tests/unit/test_isolation.py::test_a_run_is_isolated_while_it_runs_and_not_after",
    ),
)
"""Bugs in the isolation of runs: a fence keeps a run in its slot and within its lease.

A bug is a fence if it weakens that isolation, and so shows only with real processes. Schedules have no real
processes. So a unit test must find the bug: `found_by`.
"""
MORE = (*PLANTED_BY_OTHERS, *OTHER_KINDS)
