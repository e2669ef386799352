-- cancel: cancel tasks that do not run; ask the agents of those that run to end them.
-- KEYS: meta kinds changed later taken placed outbox pending: task*
-- ARGV: count retention_s why how id*
--   how: the signal that ends the run, SIGTERM; 'after' lets the run end, and the task does not run again; 'waiting' leaves a
--   task alone that has a place, 'placed' one that runs
-- RETURNS: two values per task: 'cancelled', ''; 'asked', ''; or 'none', its state; the state of an unknown id is gone
-- ERRORS: PSARGS
-- INVARIANT: a cancelled task never starts; a cancel that was asked for survives the task's return to pending.
-- ATOMICITY: each task by itself; state and indexes change together.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include queue
local bad, how = bad_retention(args.retention_s), args.how
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'cancel', 'name', 'needs', 'strategy', 'order') end
local tasks, damage = read_tasks(read)
if damage then return damage end
for i = 1, count do
  local task = tasks[i]
  if task and may_wait(task[1]) then
    task.kind = kind_text(task[3], task[4], task[5])
    bad = bad_kind(pending_prefix, task.kind)
    if bad then return bad end
  end
end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local now, ended, replies = now_ms(), {}, {}
for i, row, key in rows() do
  local task = tasks[i] or read(key)
  local state, asked = task[1] or 'gone', task[2]
  local running = state == 'running'
  local further = how == 'waiting' and (running or state == 'placed') or how == 'placed' and running
  if state == 'gone' or FINAL[state] or further then
    replies[2 * i - 1], replies[2 * i] = 'none', state
  elseif running then
    if not asked or how ~= 'after' then redis.call('HSET', key, 'cancel', how) end
    replies[2 * i - 1], replies[2 * i] = 'asked', ''
  else
    if task.kind then leave(task.kind, row.id, order_text(task[6])) end
    to_final(key, 'cancelled', now, args.why, args.retention_s)
    to_outbox(row.id, 'cancelled', args.why)
    ended[#ended + 1] = row.id
    replies[2 * i - 1], replies[2 * i] = 'cancelled', ''
  end
end
write_all('ZREM', later, ended)
write_all('HDEL', taken, ended)
write_all('HDEL', placed, ended)
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return replies
