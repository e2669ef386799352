-- each_lease: call visit(slot, lease, text) for every lease of a node, over its whole span; lease is nil if the text is not
-- one. Needs lib/lease.lua.
--- @include lease
local function each_lease(slots, node, visit)
  for from = 0, node.span - 1, 1000 do
    local fields = {}
    for slot = from, math.min(from + 999, node.span - 1) do fields[#fields + 1] = node.name .. '/' .. slot end
    for i, text in ipairs(redis.call('HMGET', slots, unpack(fields))) do
      if text then visit(from + i - 1, parse_lease(text), text) end
    end
  end
end

-- bad_lease: return the error reply for a node with a lease that is unreadable or contradicts its other leases, or nil.
local function bad_lease(slots, node)
  local bad, by_slot, by_lead = nil, {}, {} -- who has a slot, by its own lease and by its lead
  each_lease(slots, node, function(slot, lease)
    if not lease or (lease.slots and tonumber(string.match(lease.slots, '^%d+')) ~= slot) then
      bad = slot
    else
      by_slot[slot] = (lease.lead or slot) .. ' ' .. lease.task
      for number in string.gmatch(lease.slots or '', '%d+') do
        if by_lead[tonumber(number)] then bad = slot end
        by_lead[tonumber(number)] = slot .. ' ' .. lease.task
      end
    end
  end)
  for slot, who in pairs(by_slot) do bad = by_lead[slot] ~= who and slot or bad end
  for slot, who in pairs(by_lead) do bad = by_slot[slot] ~= who and slot or bad end
  return bad and redis.error_reply(string.format('PSRECORD %s has at %s/%d what is no lease', slots, node.name, bad))
end
