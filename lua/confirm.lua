-- confirm: a task whose claim was committed is placed, on the node and slot that it holds.
-- KEYS: taken placed task*
-- ARGV: count (id attempt partition node slot inc since)*
-- RETURNS: a word a task: placed, yours (it has that place already, perhaps it even runs), stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken, by this attempt, gets a place.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include arguments
--- @include batch
local taken, placed = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1]) or 0
local bad = bad_count('confirm', 2 + count, 1 + 7 * count, 2)
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'why') end
local tasks, damage = read_tasks(2, read)
if damage then return damage end
redis.call('HDEL', taken, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
local confirmed, places, replies = {}, {}, {}
for i = 1, count do
  local id, attempt, partition, node, slot, inc, since = unpack(ARGV, 7 * i - 5, 7 * i + 1)
  local key = KEYS[2 + i]
  local task = tasks[i] or read(key)
  if task[2] ~= attempt then
    replies[i] = 'stale'
  elseif task[1] == 'taken' then
    redis.call('HSET', key, 'state', 'placed', 'partition', partition, 'node', node, 'slot', slot, 'inc', inc,
      'placed_ms', since)
    if task[6] then redis.call('HDEL', key, 'why') end
    confirmed[#confirmed + 1] = id
    places[#places + 1] = id
    places[#places + 1] = 'p' .. partition .. ' ' .. node .. '/' .. slot .. ' inc=' .. inc .. ' attempt=' .. attempt
    replies[i] = 'placed'
  elseif (task[1] == 'placed' or task[1] == 'running') and task[3] == node and task[4] == slot and task[5] == inc then
    replies[i] = 'yours'
  else
    replies[i] = 'stale'
  end
end
write_all('HDEL', taken, confirmed)
write_all('HSET', placed, places)
return replies
