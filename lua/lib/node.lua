-- The record of a node, one readable line in the `nodes` hash:
--   up inc=3 drain=0 first=0 span=4 score=9.5 slots=4 gpu=2 gpu_model:a100
-- state up, leaving or down; inc the incarnation; the node's bits are first .. first+span-1; from `slots=` on, what it offers.

-- read_node: the record as a table, or nil where there is none.
local function read_node(nodes, name)
  local text = redis.call('HGET', nodes, name)
  if not text then return nil end
  local state, inc, drain, first, span, score, offer =
    string.match(text, '^(%a+) inc=(%d+) drain=(%d) first=(%d+) span=(%d+) score=(%S+) (.*)$')
  return {name = name, state = state, inc = inc, drain = drain, first = tonumber(first), span = tonumber(span),
    score = score, offer = offer, slots = tonumber(string.match(offer, '^slots=(%d+)'))}
end

local function write_node(nodes, node)
  redis.call('HSET', nodes, node.name, string.format('%s inc=%s drain=%s first=%d span=%d score=%s %s',
    node.state, node.inc, node.drain, node.first, node.span, node.score, node.offer))
end

-- usable: whether a slot may be claimed when it has no lease.
local function usable(node, slot)
  return node.state == 'up' and node.drain == '0' and slot < node.slots
end
