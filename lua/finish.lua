-- finish: accept the outcome of a run, if it is the current attempt's, at its place.
-- KEYS: meta kinds changed later placed outbox pending: task*
-- ARGV: count channel retention_s (id attempt node slot inc outcome why)*
--   outcome: succeeded, failed, cancelled, or again (the run ended well and wants another: retry, reject+requeue)
-- RETURNS: a word per task: ok, again (it is pending again), yours (this outcome was accepted before), stale
-- ERRORS: PSARGS PSOUTCOME
-- INVARIANT: a final state never changes; a stale attempt's outcome changes nothing.
-- ATOMICITY: each task by itself; a successor that the run submitted takes effect with its outcome.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include queue
local bad = bad_retention(args.retention_s)
if bad then return bad end
local known = {succeeded = true, failed = true, cancelled = true, again = true}
for _, row in rows() do
  if not known[row.outcome] then return redis.error_reply('PSOUTCOME unknown outcome ' .. row.outcome) end
end
local function read(key)
  return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'next_message')
end
local tasks, damage = read_tasks(read)
if damage then return damage end

-- is_meant: return whether a task has the attempt and the place that the row names.
local function is_meant(task, row)
  return task[2] == row.attempt and task[3] == row.node and task[4] == row.slot and task[5] == row.inc
end

local homes, nexts = {}, {} -- of the tasks that run again
for i, row, key in rows() do
  local task = tasks[i] or read(key)
  local again = (row.outcome == 'again' or task[7]) and row.outcome ~= 'cancelled' and not task[6]
  if again and task[1] == 'running' and is_meant(task, row) then
    homes[i] = home_of(key)
    nexts[i] = next_of(key, homes[i])
    bad = bad_kind(pending_prefix, homes[i].kind)
    if bad then return bad end
  end
end

redis.call('HDEL', placed, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local now, ended, replies = now_ms(), {}, {}
for i, row, key in rows() do
  local task, id, outcome = tasks[i] or read(key), row.id, row.outcome
  if not is_meant(task, row) then
    replies[i] = 'stale'
  elseif task[1] ~= 'running' then
    replies[i] = task[1] == outcome and 'yours' or 'stale'
  else
    ended[#ended + 1] = id
    if homes[i] then
      local due = become_next(key, nexts[i])
      redis.call('HSET', key, 'starts', 0)
      if due then to_later(key, id, homes[i], later, due) else to_pending(key, id, homes[i]) end
      replies[i] = 'again'
    else
      to_final(key, outcome == 'again' and 'cancelled' or outcome, now, row.why, args.retention_s,
        not task[6] and not task[7])
      if outcome == 'again' then to_outbox(id, 'cancelled', row.why) end
      replies[i] = 'ok'
    end
  end
end
write_all('HDEL', placed, ended)
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then wake(args.channel, meta) end
return replies
