-- each_lease: calls visit(slot, lease, text) for every lease of a node, over its whole span. Needs lib/lease.lua.
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
