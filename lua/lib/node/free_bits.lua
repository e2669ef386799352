-- The free bits of a node: 1 exactly when the slot is usable and has no lease.
--- @include call/clock
--- @include node/record
--- @include place/leases_of_node
--- @include cluster/wake

-- write_bits: set every bit of a node, and add the difference to meta's `free`, and return it.
-- may_open: asked before a bit becomes 1.
local function write_bits(meta, slots, free, node, may_open)
  local held, change = {}, 0
  each_lease(slots, node, function(slot) held[slot] = true end)
  for slot = 0, node.span - 1 do
    local bit = (usable(node, slot) and not held[slot] and (not may_open or may_open(slot))) and 1 or 0
    change = change + bit - redis.call('SETBIT', free, node.first + slot, bit)
  end
  redis.call('HINCRBY', meta, 'free', change)
  return change
end

-- lowest_gap: return the first bit of the first run of `length` bits that no other node than `name` has.
local function lowest_gap(nodes, name, length)
  local taken = {}
  local first = 0
  for _, other in ipairs(redis.call('HKEYS', nodes)) do
    if other ~= name then
      taken[#taken + 1] = read_node(nodes, other)
    end
  end
  table.sort(taken, function(a, b) return a.first < b.first end)
  for _, other in ipairs(taken) do
    if other.first - first >= length then
      break
    end
    first = math.max(first, other.first + other.span)
  end
  return first
end

-- clear_bits: set every bit of a node to 0, and take them from meta's `free`; return how many were 1.
local function clear_bits(meta, free, node)
  local gone = 0
  for bit = node.first, node.first + node.span - 1 do
    gone = gone + redis.call('SETBIT', free, bit, 0)
  end
  redis.call('HINCRBY', meta, 'free', 0 - gone) -- not -gone: Redis 7.0 reads Lua's negative zero as '-0', no integer
  return gone
end

-- changed_nodes: give the partition a new epoch, so that no claim on its earlier nodes wins. The epoch is the time, in ms: after
-- lost writes a server must not count up to the epoch of nodes that it has lost. If the clock was set back, the epoch grows by 1
-- and the milliseconds of the present second.
local function changed_nodes(meta)
  redis.call('HINCRBY', meta, 'version', 1)
  local now = now_ms()
  if redis.call('HINCRBY', meta, 'epoch', 1) <= tonumber(now) then
    redis.call('HSET', meta, 'epoch', now)
  else
    redis.call('HINCRBY', meta, 'epoch', now % 1000)
  end
end

-- tell_opened: if a node has more free slots than before, tell the scheduler that has waited longest for one.
local function tell_opened(channel, partition, meta, opened)
  if opened < 1 then return end
  local waiters, free, slots = unpack(redis.call('HMGET', meta, 'waiters', 'free', 'slots'))
  if waiters then ring_oldest(channel, partition, meta, waiters, free, slots) end
end
