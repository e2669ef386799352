-- set_node: drain, undrain, or leaving: whether new claims may go to a node. What runs there goes on.
-- KEYS: meta slots free nodes
-- ARGV: node inc word
--   inc is '' for whichever process has the name (an operator), or the incarnation that leaves
-- RETURNS: {ok, state, drain} or {gone}
-- ERRORS: PSARGS PSWORD
-- INVARIANT: the bits of a node that takes no claims are 0; a drain survives the node's restart.
-- ATOMICITY: the bits go with the state.
-- COMPLEXITY: O(span)
--- @include arguments
--- @include bits
local bad = bad_count('set_node', 4, 3)
if bad then return bad end
local meta, slots, free, nodes = unpack(KEYS)
local name, inc, word = unpack(ARGV)
local node = read_node(nodes, name)
if not node or (inc ~= '' and inc ~= node.inc) then return {'gone'} end
if word == 'drain' then
  node.drain = '1'
elseif word == 'undrain' then
  node.drain = '0'
elseif word == 'leaving' then
  if node.state == 'up' then node.state = 'leaving' end
else
  return redis.error_reply('PSWORD drain, undrain or leaving, not ' .. word)
end
redis.call('HDEL', meta, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
write_node(nodes, node)
write_bits(meta, slots, free, node)
changed_nodes(meta)
return {'ok', node.state, node.drain}
