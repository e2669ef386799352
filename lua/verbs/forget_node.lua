-- forget_node: remove the record of a node that is down and has no leases.
-- KEYS: meta slots free left changed nodes alive lost notes inbox
-- ALSO: events
-- ARGV: node inc how
--   how: 'left' if the node's process leaves and may come back: then a drained node stays; '' if
--   the node has been down for long
-- RETURNS: a word
--   forgotten: the record was removed; gone: the node has no record
--   held: the node has leases, and stays
--   drained: the node is drained, or has an operator's notice, and stays
--   up: the node is not down, or has another incarnation, and stays
-- ERRORS: PSARGS
-- INVARIANT: the bits of a node that is down are 0 already. The partition remembers the highest
--   incarnation.
-- ATOMICITY: the whole call.
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
if args.how == 'left' and (node.drain ~= '0' or node.notice and not is_own(node)) then
  return 'drained'
end
remove_node(node)
note_event('forgotten', {node = node.name})
return 'forgotten'
