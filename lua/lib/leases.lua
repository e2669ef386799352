-- each_lease: calls visit(slot, lease, text) for every lease of a node, over its whole span; lease is nil where the text is
-- none. Needs lib/lease.lua.
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

-- bad_lease: the error reply for a node that has a lease that cannot be read, or nil.
local function bad_lease(slots, node)
  local bad
  each_lease(slots, node, function(slot, lease)
    if not lease then bad = string.format('PSRECORD %s has at %s/%d what is no lease', slots, node.name, slot) end
  end)
  return bad and redis.error_reply(bad)
end
