-- Look at the leases of a node.
--- @include place/lease

-- each_lease: call visit(slot, lease, text) for every lease of a node, over its whole span. lease
-- is nil for a text that is no lease; lease.leads says whether the slot is the lead.
local function each_lease(slots, node, visit)
  for from = 0, node.span - 1, 1000 do
    local seats = {}
    for slot = from, math.min(from + 999, node.span - 1) do
      seats[#seats + 1] = node.name .. '/' .. slot
    end
    for i, text in ipairs(redis.call('HMGET', slots, unpack(seats))) do
      if text then
        local slot = from + i - 1
        local lease = parse_lease(text)
        if lease then
          lease.leads = lease.lead == slot
        end
        visit(slot, lease, text)
      end
    end
  end
end

-- names_seat: return whether a lease names this slot of this node, in the partition of the key
-- `slots`.
local function names_seat(lease, slots, name, slot)
  local ending = 'p' .. lease.partition .. '}:slots'
  if lease.name ~= name or string.sub(slots, -#ending) ~= ending then
    return false
  end
  return string.find(',' .. lease.slots .. ',', ',' .. slot .. ',', 1, true) ~= nil
end

-- bad_lease: return the error reply for a node with a lease that is unreadable or contradicts the
-- node's other leases, or nil.
local function bad_lease(slots, node)
  local damaged_slot
  local texts = {}
  local leases = {}
  each_lease(slots, node, function(slot, lease, text)
    texts[string.format('%d', slot)] = text
    leases[slot] = lease
    if not lease or not names_seat(lease, slots, node.name, slot) then
      damaged_slot = slot
    end
  end)
  for slot, lease in pairs(leases) do
    if not agrees(texts, lease, texts[string.format('%d', slot)]) then
      damaged_slot = slot
    end
  end
  if damaged_slot then
    local seat = string.format('%s/%d', node.name, damaged_slot)
    return redis.error_reply(string.format('PSRECORD %s has at %s what is no lease', slots, seat))
  end
end
