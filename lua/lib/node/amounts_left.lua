-- Compute the amounts that a node has left from its offer and its leases, and write them.
--- @include place/leases_of_node
--- @include node/ledger

-- capacity_amounts: return the amounts of what `capacity=` of a record says, also the slots; {} for
-- nil.
local function capacity_amounts(capacity)
  return capacity and amounts((string.gsub(capacity, '[,?]', ' '))) or {}
end

-- amounts_given: return the amounts that a node can give now while it holds nothing: those of its
-- capacity, else of its offer.
local function amounts_given(node)
  local ledger = amounts(node.offer)
  local limits = capacity_amounts(node.capacity)
  for name, amount in pairs(limits) do
    if not PARTS[name] then
      ledger[name] = amount
      ledger[name .. '.'] = limits[name .. '.']
    end
  end
  ledger.slots = nil
  return ledger
end

-- lost_and_left: read the leases of a node. Return whether a lease is lost (the node is down, or
-- the lease has another incarnation), the amounts that are left of what the node can give (less
-- than 0 if it holds more than it can give now), and the leased slots {slot -> true}.
local function lost_and_left(slots, node)
  local ledger = amounts_given(node)
  local any_lost = false
  local leased = {}
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
