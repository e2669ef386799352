-- restore: put back leases that were lost, for tasks that have these places, if nothing else has their slots.
-- KEYS: meta slots free left changed nodes
-- ARGV: count text*
--   text: the place of a task, as `running` has it
-- RETURNS: a word per place: back (it has its lease again), yours (it had it), other (another task has a slot), gone (its
--   node is down, is another process now, or has no such slot)
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a slot has one lease; what is left and what leases hold add up to what the node declared.
-- ATOMICITY: each place by itself.
-- COMPLEXITY: O(count * span)
--- @include node/free_bits
--- @include repair/contradictions

-- put_back: write the lease at each slot of a place that has none; return the word.
local function put_back(text, lease, node)
  local fields, missing = {}, {}
  if not node or node.inc ~= lease.inc or node.state == 'down' then return 'gone' end
  for number in string.gmatch(lease.slots, '%d+') do
    if tonumber(number) >= node.span or not names_seat(lease, slots, node.name, number) then return 'gone' end
    fields[#fields + 1] = node.name .. '/' .. number
  end
  for i, there in ipairs(read_list(slots, fields)) do
    if there and there ~= text then return 'other' end
    if not there then missing[#missing + 1], missing[#missing + 2] = fields[i], text end
  end
  if #missing == 0 then return 'yours' end
  write_all('HSET', slots, missing)
  local _, rest, held = lost_and_left(slots, node)
  write_left(left, node.name, rest)
  for slot in pairs(held) do
    if redis.call('SETBIT', free, node.first + slot, 0) == 1 then redis.call('HINCRBY', meta, 'free', -1) end
  end
  redis.call('ZADD', changed, redis.call('HINCRBY', meta, 'version', 1), node.name)
  return 'back'
end

-- bad_seat: return the error reply for a node with a seat that has what is no lease, or nil.
local function bad_seat(node)
  local bad
  each_lease(slots, node, function(slot, lease) if not lease then bad = slot end end)
  return bad and redis.error_reply(string.format('PSRECORD %s has at %s/%d what is no lease', slots, node.name, bad))
end

local replies, seen = {}, {}
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for _, row in rows() do -- before anything is written
  local lease = task_at(row.text) and parse_lease(row.text)
  local node = lease and not seen[lease.name] and read_node(nodes, lease.name)
  local bad = node and bad_seat(node)
  if bad then return bad end
  if lease then seen[lease.name] = true end
end
for i, row in rows() do
  local lease = task_at(row.text) and parse_lease(row.text)
  replies[i] = lease and put_back(row.text, lease, read_node(nodes, lease.name)) or 'gone'
end
return replies
