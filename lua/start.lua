-- start: the current attempt may start, once, at its place; the reply hands over the message that is to be run.
-- KEYS: taken placed task*
-- ARGV: count (id attempt partition node slot inc since)*
-- RETURNS: two a task: ok and its message; yours and its message, to the same place asking again; or refused and its state
-- ERRORS: PSARGS
-- INVARIANT: of an attempt at most one start is accepted; only from taken or placed; only where confirm put it, if it has.
-- ATOMICITY: each task by itself; it leaves `taken` as it starts, so that no leader puts a running task back.
-- COMPLEXITY: O(count)
--- @include arguments
--- @include batch
--- @include clock
local taken, placed = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1]) or 0
local bad = bad_count('start', 2 + count, 1 + 7 * count, 2)
if bad then return bad end
local function read(key)
  return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'message', 'starts', 'why')
end
local tasks, damage = read_tasks(2, read)
if damage then return damage end
redis.call('HDEL', taken, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
local now, begun, places, replies = now_ms(), {}, {}, {}

-- started: {word, message} of one task.
local function started(task, key, id, attempt, partition, node, slot, inc, since)
  local state, here = task[1], task[3] == node and task[4] == slot and task[5] == inc
  if not state then return 'refused', 'gone' end
  if task[2] ~= attempt then return 'refused', state end
  if state == 'running' and here then return 'yours', task[6] or '' end
  if state ~= 'taken' and not (state == 'placed' and here) then return 'refused', state end
  redis.call('HSET', key, 'state', 'running', 'partition', partition, 'node', node, 'slot', slot, 'inc', inc,
    'placed_ms', since, 'started_ms', now, 'starts', (tonumber(task[7]) or 0) + 1)
  if task[8] then redis.call('HDEL', key, 'why') end
  if state == 'taken' then
    begun[#begun + 1], places[#places + 1] = id, id
    places[#places + 1] = 'p' .. partition .. ' ' .. node .. '/' .. slot .. ' inc=' .. inc .. ' attempt=' .. attempt
  end
  return 'ok', task[6] or ''
end

for i = 1, count do
  local key = KEYS[2 + i]
  replies[2 * i - 1], replies[2 * i] = started(tasks[i] or read(key), key, unpack(ARGV, 7 * i - 5, 7 * i + 1))
end
write_all('HDEL', taken, begun)
write_all('HSET', placed, places)
return replies
