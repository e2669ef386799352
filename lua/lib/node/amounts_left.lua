-- Compute the amounts that a node has left from its offer and its leases, and write them.
--- @include place/leases_of_node
--- @include node/ledger

-- lost_and_left: read the leases of a node. Return whether a lease is lost (the node is down, or
-- the lease has another incarnation), the amounts that are left of the offer, and the leased slots
-- {slot -> true}.
local function lost_and_left(slots, node)
  local ledger = amounts(node.offer)
  local any_lost = false
  local leased = {}
  ledger.slots = nil
  each_lease(slots, node, function(slot, lease)
    leased[slot] = true
    any_lost = any_lost or node.state == 'down' or lease.inc ~= node.inc
    if lease.leads then
      ledger_add(ledger, amounts(lease.asked), -1)
    end
  end)
  return any_lost, ledger, leased
end

-- write_left: write the ledger of a node. A node without amounts has no field in `left`.
local function write_left(left_key, name, ledger)
  if next(ledger) then
    redis.call('HSET', left_key, name, ledger_text(ledger))
  else
    redis.call('HDEL', left_key, name)
  end
end
