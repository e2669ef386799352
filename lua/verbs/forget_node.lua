-- forget_node: remove the record of a node that is down and has no leases.
-- KEYS: meta slots free left changed nodes alive lost notes inbox
-- ALSO: events
-- ARGV: node inc how
--   how: 'left' if its process leaves and may come back, so that a drained node stays; '' if the
--   node has been down for long
-- RETURNS: forgotten, held, drained, up or gone
--   held: leases stand; drained: the node stays; up: it is not down, or has another incarnation
-- ERRORS: PSARGS
-- INVARIANT: its bits are 0 already. The partition remembers the highest incarnation.
-- ATOMICITY: whole.
-- COMPLEXITY: O(span)
--- @include node/free_bits
--- @include cluster/events

-- has_leases: return whether a node has a lease.
local function has_leases(node)
  local is_leased = false
  each_lease(slots, node, function()
    is_leased = true
  end)
  return is_leased
end

-- remove_node: remove all that the partition has of a node.
local function remove_node(node)
  redis.call('HDEL', nodes, node.name)
  redis.call('HDEL', alive, node.name)
  redis.call('HDEL', left, node.name)
  redis.call('ZREM', changed, node.name)
  redis.call('SREM', lost, node.name)
  redis.call('HDEL', notes, node.name)
  redis.call('DEL', inbox)
  redis.call('HINCRBY', meta, 'slots', -node.slots)
  changed_nodes(meta)
end

local node = read_node(nodes, args.node)
if not node then
  return 'gone'
end
if node.state ~= 'down' or node.inc ~= args.inc then
  return 'up'
end
if has_leases(node) then
  return 'held'
end
if args.how == 'left' and node.drain ~= '0' then
  return 'drained'
end
remove_node(node)
note_event('forgotten', {node = node.name})
return 'forgotten'
