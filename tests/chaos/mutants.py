"""Bugs planted on purpose, each a change of a few words in a script or a function, and the hunt for
them.

A harness proves nothing until it finds what is known to be wrong. Each mutant breaks one condition
that the protocol rests on; `hunt` plays schedules until a promise breaks.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from parsync_redis.store.scripts.scripts import lua_folder
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer

from .ghost import Violation
from .more_mutants import MORE
from .mutant import Mutant
from .schedule import Schedule, run_schedule
from .wire import Scripts

_EX = "parsync_redis.worker"
_SC = "parsync_redis.scheduler"
MUTANTS = (
    Mutant(
        "commit does not look at the slot",
        "verbs/commit",
        "if lease or open[n] == 0 then",
        "if false then",
    ),
    Mutant(
        "commit ignores the epoch", "verbs/commit", "if epoch ~= args.epoch then", "if false then"
    ),
    Mutant(
        "commit ignores what is left",
        "lib/node/ledger",
        "(is_enough(ledger, asked) and asked or in_full().hold(ledger, asked))",
        "asked",
    ),
    Mutant(
        "confirm of a task no longer taken",
        "verbs/confirm",
        "owners[i] == row.attempt",
        "(owners[i] == row.attempt or not owners[i] and not run)",
    ),
    Mutant("confirm ignores the attempt", "verbs/confirm", "owners[i] == row.attempt", "owners[i]"),
    Mutant("start ignores the attempt", "verbs/start", "owners[i] == row.attempt", "owners[i]"),
    Mutant(
        "start of a task that went back",
        "verbs/start",
        "owners[i] == row.attempt",
        "(owners[i] == row.attempt or not owners[i])",
    ),
    Mutant(
        "start refuses its own repeat",
        "verbs/start",
        "elseif run and is_run_at(run, place) then",
        "elseif false then",
    ),
    Mutant("start ignores how many may run", "verbs/start", "count > limit and", "false and"),
    Mutant(
        "start leaves the task in taken",
        "verbs/start",
        "redis.call('HDEL', taken, unpack(begun))",
        "",
    ),
    Mutant(
        "finish ignores the attempt",
        "verbs/finish",
        "is_run_at(run, place)",
        "string.find(run, ' started=', 1, true)",
    ),
    Mutant(
        "finish leaves the run",
        "verbs/finish",
        "redis.call('HDEL', running, unpack(ended_ids))",
        "",
    ),
    Mutant("finish forgets a cancel", "lib/task/outcome", "task.extra.cancel ~= nil", "false"),
    Mutant(
        "requeue ignores attempt and place",
        "verbs/requeue",
        "if not task or task.attempt ~= row.attempt then\n    return false\n  end\n  if row.how "
        "== 'unstarted' and task.state ~= 'placed' then\n    return false\n  end\n  return "
        "task.state == 'taken' or task.place == row.text",
        "return task and (task.state == 'taken' or task.state == 'placed' or task.state == "
        "'running')",
    ),
    Mutant(
        "requeue leaves taken tasks",
        "verbs/requeue",
        "task.state == 'taken' or task.place",
        "task.place",
    ),
    Mutant(
        "requeue forgets a cancel", "verbs/requeue", "if task.extra.cancel then", "if false then"
    ),
    Mutant(
        "the limit counts attempts",
        "verbs/requeue",
        "starts >= (tonumber(option(task.line, 'max')) or max_starts)",
        "tonumber(string.match(row.attempt, '^%d+')) >= (tonumber(option(task.line, 'max')) or "
        "max_starts)",
    ),
    Mutant(
        "give_back of any task",
        "verbs/give_back",
        "local is_owned = task and task.line and owner == args.scheduler",
        "local is_owned = owner ~= 0 and task and task.line and not FINAL[task.state]",
    ),
    Mutant(
        "take gives the attempt out again",
        "lib/task/line",
        "string.format('%d', takes + 1)",
        "takes",
    ),
    Mutant(
        "what goes back keeps its count",
        "lib/task/transitions",
        "    line.takes = tonumber(takes)\n",
        "",
    ),
    Mutant(
        "submit is not idempotent",
        "lib/task/resubmission",
        "not (anew and FINAL[task.state] and not revoked)",
        "FINAL[task.state] and not (anew and not revoked)",
    ),
    Mutant(
        "an id begins anew at its first attempt",
        "verbs/submit",
        "'0@%d %s %s %s %s %s', life,",
        "'0@%d %s %s %s %s %s', 1,",
    ),
    Mutant(
        "rotate forgets what has just ended",
        "verbs/rotate",
        "'UNLINK', ended_2",
        "'UNLINK', ended, ended_2",
    ),
    Mutant("cancel of a final task", "verbs/cancel", "or FINAL[state] then", "then"),
    Mutant(
        "cancel leaves the task in the order",
        "verbs/cancel",
        "if state == 'pending' and task.line then",
        "if false then",
    ),
    Mutant(
        "a change makes no version",
        "lib/kind/index",
        "if LAST_VERSION > before then",
        "if false then",
    ),
    Mutant(
        "a version is a count",
        "lib/kind/index",
        "math.max(COUNTED.version, time, 157792320000000)",
        "math.max(COUNTED.version, 157792320000000)",
    ),
    Mutant(
        "what goes back is written nowhere",
        "verbs/give_back",
        "write_changes(meta, kinds, changed)",
        "",
    ),
    Mutant(
        "what others change is told to nobody",
        "lib/kind/changes",
        "if version == COUNTED.version and",
        "if version > 0 and",
    ),
    Mutant(
        "a take leaves the line as it was",
        "lib/kind/waiting",
        "queue.count = queue.count - redis.call(",
        "redis.call(",
    ),
    Mutant(
        "release ignores the attempt",
        "verbs/release",
        "if leases[i] ~= text or",
        "if not leases[i] or string.match(leases[i], '^%S+') ~= string.match(text, '^%S+') or",
    ),
    Mutant(
        "release ignores who holds the slot",
        "verbs/release",
        "if leases[i] ~= text or",
        "if not leases[i] or",
    ),
    Mutant(
        "a change of the nodes leaves the epoch",
        "lib/node/free_bits",
        "if redis.call('HINCRBY', meta, 'epoch', 1) <= tonumber(now) then\n    redis.call('HSET', "
        "meta, 'epoch', now)\n  else\n    redis.call('HINCRBY', meta, 'epoch', now % 1000)\n  end",
        "",
    ),
    Mutant(
        "an epoch is a count",
        "lib/node/free_bits",
        "if redis.call('HINCRBY', meta, 'epoch', 1) <= tonumber(now) then",
        "now = '0'\n  if redis.call('HINCRBY', meta, 'epoch', 1) <= tonumber(now) then",
    ),
    Mutant(
        "release frees a slot nobody may use",
        "lib/node/record",
        "'^up inc=%d+ drain=0 first",
        "'^%l+ inc=%d+ drain=%d first",
    ),
    Mutant(
        "register forgets what leases hold",
        "verbs/register_node",
        "ledger_add(ledger, amounts(lease.asked), -1)",
        "local _ = lease",
    ),
    Mutant(
        "register forgets slots beyond",
        "verbs/register_node",
        "math.max(node.span, slot + 1)",
        "node.span",
    ),
    Mutant(
        "register keeps the incarnation",
        "verbs/register_node",
        "math.max(inc, known_inc) + 1",
        "math.max(1, known_inc, inc)",
    ),
    Mutant(
        "reclaim trusts an old counter",
        "verbs/reclaim",
        "or counter ~= counter_text(args.inc, args.moved) then",
        "then",
    ),
    Mutant(
        "renew of a node given up", "verbs/renew", "if node.state == 'down' then", "if false then"
    ),
    Mutant(
        "the leader frees before it puts back",
        f"{_SC}.leader.nodes:clear_leases",
        "    release = store.commands.release\n",
        "    release = store.commands.release\n"
        "    [store.run(release(place.partition, [place])) for place in lost]\n",
    ),
    Mutant(
        "the leader frees and never puts back",
        f"{_SC}.leader.nodes:clear_leases",
        "    requeued = run_parts(",
        "    requeued = list(lost) or run_parts(",
    ),
    Mutant(
        "no grace after a restart",
        f"{_SC}.process.membership:Membership._notice_restart",
        "if run.id != before.get(name, none).id]",
        "if not before]",
    ),
    Mutant(
        "half a lease is enough",
        f"{_SC}.process.lease_watch:LeaseWatch.look",
        "now_s - last_seen[1] >= self.lease_s",
        "now_s - last_seen[1] >= self.lease_s / 2",
    ),
    Mutant(
        "an observer that slept judges",
        f"{_SC}.process.lease_watch:LeaseWatch.look",
        "if now_s - self._looked_s > self.lease_s / 2:",
        "if False:",
    ),
    Mutant(
        "strays are not given back",
        f"{_SC}.process.taken_tasks:TakenTasks._give_back",
        "task not in tasks_of_core",
        "task in ()",
    ),
    Mutant(
        "no orphan is given back",
        f"{_SC}.leader.schedulers:SchedulerDuty.work",
        "if owner not in members",
        "if not owner",
    ),
    Mutant(
        "two runs on one slot",
        f"{_EX}.node.runs:Runs.enter",
        "if busy or run.key in",
        "if run.key in",
    ),
    Mutant(
        "a repeat runs again",
        f"{_EX}.node.runs:Runs.enter",
        "if busy or run.key in self._runs:",
        "if busy and run.key not in self._runs:",
    ),
    Mutant(
        "a repeat frees the slot",
        f"{_EX}.node.run_starter:Starter._entered",
        "node.runs.enter(run) else",
        "(node.runs.enter(run) or self._reporter._ended.put(Run(run.place, None, 'refused'))) else",
    ),
    Mutant(
        "a message of another incarnation",
        f"{_EX}.node.run_starter:Starter._entered",
        "return run if is_ours and not node.leaving",
        "return run if not node.leaving",
    ),
    Mutant(
        "doorbells are not rung again",
        f"{_EX}.node.reconciler:Reconciler._compare",
        "for lease in twice])",
        "for lease in twice[:0]]) or [''] * len(twice)",
    ),
    Mutant(
        "the slot before the outcome",
        f"{_EX}.node.reporter:Reporter._report",
        "    groups = store.keys.by_shard(",
        "    for run in free: store.run(store.commands.release(run.place.partition, "
        "[run.place]))\n    groups = store.keys.by_shard(",
    ),
    Mutant(
        "a leaving node frees before it puts back",
        f"{_EX}.node.reconciler:Reconciler._give_back",
        "store.run_each(calls)",
        "[None] * len(calls)",
    ),
    Mutant(
        "a lost process is forgotten",
        f"{_EX}.node.reporter:outcomes",
        "calls += [commands.requeue(lost)] if lost else []",
        "pass",
    ),
    *MORE,
)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Scripts]:
    """Return the scripts with the bug in, or the function of the product replaced meanwhile."""
    if mutant.in_lua:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "lua")
            shutil.copytree(lua_folder(), copy)
            file = copy / f"{mutant.where}.lua"
            text = file.read_text(encoding="utf-8")
            assert text.count(mutant.old) == 1, (
                f"{mutant.name}: {text.count(mutant.old)} places in {file.name}"
            )
            file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            yield Scripts(copy)
        return
    module_name, _, path = mutant.where.partition(":")
    module = importlib.import_module(module_name)
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    old = mutant.old if mutant.old in source else textwrap.dedent(mutant.old)
    new = mutant.new if mutant.old in source else textwrap.dedent(mutant.new)
    assert source.count(old) == 1, f"{mutant.name}: {source.count(old)} places in {mutant.where}"
    found: dict[str, Any] = {}
    exec(
        compile(
            "from __future__ import annotations\n" + source.replace(old, new), mutant.where, "exec"
        ),
        module.__dict__,
        found,
    )
    setattr(owner, name, found[name])
    try:
        yield Scripts()
    finally:
        setattr(owner, name, original)


def hunt(client: redis.Redis, mutant: Mutant, most: int, seed: int) -> tuple[int, Violation | None]:
    """Return how many schedules it took, and what broke; None if `most` did not find it."""
    with planted(mutant) as scripts:
        for number in range(most):
            if violation := run_schedule(
                client, scripts, Schedule(seed + number, shards=mutant.shards)
            )[0]:
                return number + 1, violation
    return most, None


def hunt_all(most: int, seed: int, only: str = "") -> int:
    """Hunt every mutant and print the table; 1 if one was not found, or one that is
    harmless was.
    """
    missed = 0
    hunted = 0
    print(f"{'planted bug':42} {'schedules':>9} {'seconds':>8}  broken promise", flush=True)
    with EmbeddedServer() as server, connect(server.url) as client:
        for mutant in MUTANTS:
            if only not in mutant.name:
                continue
            begun_s = time.monotonic()
            number, violation = hunt(client, mutant, most, seed)
            missed = missed + ((violation is None) != bool(mutant.harmless))
            hunted = hunted + 1
            took_s = time.monotonic() - begun_s
            none = f"harmless: {mutant.harmless}" if mutant.harmless else "NOT FOUND"
            print(
                f"{mutant.name:42} {number:9d} {took_s:8.1f}  {str(violation or none)[:110]}",
                flush=True,
            )
    print(
        f"{hunted - missed} of {hunted} as expected, each within {most} schedules from seed {seed}"
    )
    return int(missed > 0)
