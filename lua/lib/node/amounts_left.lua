-- Compute the amounts that a node has left from its offer and its leases, and write them.
--- @include place/leases_of_node
--- @include node/ledger

-- lost_and_left: look at the leases of a node: return whether one is lost, what is left of its amounts, and {slot -> true}.
local function lost_and_left(slots, node)
  local rest, any_lost, held = amounts(node.offer), false, {}
  rest.slots = nil
  each_lease(slots, node, function(slot, lease)
    held[slot] = true
    any_lost = any_lost or node.state == 'down' or lease.inc ~= node.inc
    if lease.leads then ledger_add(rest, amounts(lease.asked), -1) end
  end)
  return any_lost, rest, held
end

-- write_left: write the amounts that a node has left; a node without amounts has no field.
local function write_left(left, name, rest)
  if next(rest) then redis.call('HSET', left, name, ledger_text(rest)) else redis.call('HDEL', left, name) end
end
