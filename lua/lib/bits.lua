-- The free bits of a node: 1 exactly when the slot is usable and has no lease. Needs lib/node.lua and lib/leases.lua.
--- @include clock
--- @include node
--- @include leases

-- write_bits: set every bit of a node, and add the difference to meta's `free`. may_open: asked before a bit becomes 1.
local function write_bits(meta, slots, free, node, may_open)
  local held, change = {}, 0
  each_lease(slots, node, function(slot) held[slot] = true end)
  for slot = 0, node.span - 1 do
    local bit = (usable(node, slot) and not held[slot] and (not may_open or may_open(slot))) and 1 or 0
    change = change + bit - redis.call('SETBIT', free, node.first + slot, bit)
  end
  redis.call('HINCRBY', meta, 'free', change)
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
