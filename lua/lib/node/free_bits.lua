-- The free bits of a node: a bit is 1 exactly when its slot is usable and has no lease.
--- @include call/clock
--- @include node/record
--- @include place/leases_of_node
--- @include cluster/wake

-- write_bits: set every bit of a node, add the difference to `free` of meta, and
-- return the difference.
-- may_open: nil, or a function that is asked before the bit of a slot becomes 1.
local function write_bits(meta, slots, free, node, may_open)
  local leased = {}
  local change = 0
  each_lease(slots, node, function(slot)
    leased[slot] = true
  end)
  for slot = 0, node.span - 1 do
    local is_free = usable(node, slot) and not leased[slot] and (not may_open or may_open(slot))
    local bit = is_free and 1 or 0
    change = change + bit - redis.call('SETBIT', free, node.first + slot, bit)
  end
  redis.call('HINCRBY', meta, 'free', change)
  return change
end

-- lowest_gap: return the first bit of the lowest run of `length` bits that no node but `name` has.
local function lowest_gap(nodes, name, length)
  local neighbours = {}
  local first = 0
  for _, neighbour in ipairs(redis.call('HKEYS', nodes)) do
    if neighbour ~= name then
      neighbours[#neighbours + 1] = read_node(nodes, neighbour)
    end
  end
  table.sort(neighbours, function(a, b)
    return a.first < b.first
  end)
  for _, neighbour in ipairs(neighbours) do
    if neighbour.first - first >= length then
      break
    end
    first = math.max(first, neighbour.first + neighbour.span)
  end
  return first
end

-- clear_bits: set every bit of a node to 0, and subtract them from `free` of meta. Returns how
-- many bits were 1.
local function clear_bits(meta, free, node)
  local cleared = 0
  for bit = node.first, node.first + node.span - 1 do
    cleared = cleared + redis.call('SETBIT', free, bit, 0)
  end
  -- 0 - cleared, not -cleared: Redis 7.0 reads Lua's negative zero as '-0', which is no integer
  redis.call('HINCRBY', meta, 'free', 0 - cleared)
  return cleared
end

-- changed_nodes: give the partition a new epoch, so that no claim on its earlier nodes wins.
-- The epoch is the time in ms: after lost writes a server must not count up to the epoch of nodes
-- that it has lost. If the clock was set back, the epoch grows by 1 and by the milliseconds of the
-- present second.
local function changed_nodes(meta)
  redis.call('HINCRBY', meta, 'version', 1)
  local now = now_ms()
  if redis.call('HINCRBY', meta, 'epoch', 1) <= tonumber(now) then
    redis.call('HSET', meta, 'epoch', now)
  else
    redis.call('HINCRBY', meta, 'epoch', now % 1000)
  end
end

-- write_version: write the next version of a partition after a change of a node. A change of its
-- waiting seats or its capacity keeps the epoch, because claims on the node are judged as before.
local function write_version(meta, changed, node, has_new_record, has_new_capacity)
  if has_new_record then
    changed_nodes(meta)
    return
  end
  local version = redis.call('HINCRBY', meta, 'version', 1)
  if has_new_capacity then
    redis.call('ZADD', changed, version, node.name)
  end
end

-- tell_opened: if a node has more free slots than before, tell the scheduler that has waited
-- longest for a slot of the partition.
local function tell_opened(channel, partition, meta, opened)
  if opened < 1 then
    return
  end
  local waiters, free, slots = unpack(redis.call('HMGET', meta, 'waiters', 'free', 'slots'))
  if waiters then
    ring_oldest(channel, partition, meta, waiters, free, slots)
  end
end
