-- confirm: mark a task whose claim was committed as placed, on the node and slot that it holds.
-- KEYS: taken placed task*
-- ARGV: count (id attempt partition node slot inc since)*
-- RETURNS: a word per task: placed, yours (it has that place already, perhaps it even runs), stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken, by this attempt, gets a place.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include batch
--- @include place
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'why') end
local tasks, damage = read_tasks(read)
if damage then return damage end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local confirmed, places, replies = {}, {}, {}
for i, row, key in rows() do
  local task, node, slot, inc = tasks[i] or read(key), row.node, row.slot, row.inc
  if task[2] ~= row.attempt then
    replies[i] = 'stale'
  elseif task[1] == 'taken' then
    redis.call('HSET', key, 'state', 'placed', 'partition', row.partition, 'node', node, 'slot', slot, 'inc', inc,
      'placed_ms', row.since)
    if task[6] then redis.call('HDEL', key, 'why') end
    confirmed[#confirmed + 1] = row.id
    places[#places + 1] = row.id
    places[#places + 1] = place_text(row.partition, node, slot, inc, row.attempt)
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
