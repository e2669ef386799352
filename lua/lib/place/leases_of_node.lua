-- each_lease: call visit(slot, lease, text) for every lease of a node, over its whole span; lease is nil if the text is not
-- one. lease.leads says whether the slot is the lead.
--- @include place/lease
local function each_lease(slots, node, visit)
  for from = 0, node.span - 1, 1000 do
    local fields = {}
    for slot = from, math.min(from + 999, node.span - 1) do fields[#fields + 1] = node.name .. '/' .. slot end
    for i, text in ipairs(redis.call('HMGET', slots, unpack(fields))) do
      if text then
        local lease = parse_lease(text)
        if lease then lease.leads = lease.lead == from + i - 1 end
        visit(from + i - 1, lease, text)
      end
    end
  end
end

-- names_seat: return whether a lease names this slot of this node, in the partition of the key `slots`.
local function names_seat(lease, slots, name, slot)
  if lease.name ~= name or string.sub(slots, -#lease.partition - 8) ~= 'p' .. lease.partition .. '}:slots' then return false end
  return string.find(',' .. lease.slots .. ',', ',' .. slot .. ',', 1, true) ~= nil
end

-- bad_lease: return the error reply for a node with a lease that is unreadable or contradicts its other leases, or nil.
local function bad_lease(slots, node)
  local bad, texts, held = nil, {}, {}
  each_lease(slots, node, function(slot, lease, text)
    texts[string.format('%d', slot)], held[slot] = text, lease
    if not lease or not names_seat(lease, slots, node.name, slot) then bad = slot end
  end)
  for slot, lease in pairs(held) do
    if not agrees(texts, lease, texts[string.format('%d', slot)]) then bad = slot end
  end
  return bad and redis.error_reply(string.format('PSRECORD %s has at %s/%d what is no lease', slots, node.name, bad))
end
