-- start: start the current attempt of a task, at most once and only where it was placed. The reply has the message to run.
-- KEYS: taken placed task*
-- ARGV: count (id attempt partition node slot inc since)*
-- RETURNS: two values per task: 'ok', message; or 'yours', message (the same place asks again); or 'refused', state of the task
-- ERRORS: PSARGS
-- INVARIANT: an attempt starts at most once; only from taken or placed; once `confirm` wrote a place, only there.
-- ATOMICITY: each task by itself. A start also removes the task from `taken`, so no leader returns a running task to pending.
-- COMPLEXITY: O(count)
--- @include batch
--- @include clock
--- @include place
local function read(key)
  return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'message', 'starts', 'why')
end
local tasks, damage = read_tasks(read)
if damage then return damage end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local now, begun, places, replies = now_ms(), {}, {}, {}

-- started: return the word and the message of one task.
local function started(task, key, row)
  local attempt, node, slot, inc = row.attempt, row.node, row.slot, row.inc
  local state, here = task[1], task[3] == node and task[4] == slot and task[5] == inc
  if not state then return 'refused', 'gone' end
  if task[2] ~= attempt then return 'refused', state end
  if state == 'running' and here then return 'yours', task[6] or '' end
  if state ~= 'taken' and not (state == 'placed' and here) then return 'refused', state end
  redis.call('HSET', key, 'state', 'running', 'partition', row.partition, 'node', node, 'slot', slot, 'inc', inc,
    'placed_ms', row.since, 'started_ms', now, 'starts', (tonumber(task[7]) or 0) + 1)
  if task[8] then redis.call('HDEL', key, 'why') end
  if state == 'taken' then
    begun[#begun + 1], places[#places + 1] = row.id, row.id
    places[#places + 1] = place_text(row.partition, node, slot, inc, attempt)
  end
  return 'ok', task[6] or ''
end

for i, row, key in rows() do
  replies[2 * i - 1], replies[2 * i] = started(tasks[i] or read(key), key, row)
end
write_all('HDEL', taken, begun)
write_all('HSET', placed, places)
return replies
