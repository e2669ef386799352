-- renew: a node's agent moves its counter, which keeps its lease; or hears that the lease is not its own any more.
-- KEYS: nodes alive
-- ARGV: node inc
-- RETURNS: {ok, moved, state, drain}, {superseded, inc} (a newer process has the name), {lapsed} (it was given up)
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: only the node's present incarnation, while up or leaving, moves the counter.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1)
--- @include arguments
--- @include node
local bad = bad_count('renew', 2, 2)
if bad then return bad end
local nodes, alive = KEYS[1], KEYS[2]
local node = read_node(nodes, ARGV[1])
if not node then return bad_node(nodes, ARGV[1]) or {'lapsed'} end
local counter = redis.call('HGET', alive, node.name) or ''
if node.inc ~= ARGV[2] then -- one that the server does not know any more registers again, docs/decisions/0016
  if string.match(counter, '^inc=(%d+) ') ~= node.inc then -- no process has registered so
    return redis.error_reply(string.format('PSRECORD %s has at %s another incarnation than %s', nodes, node.name, alive))
  end
  return tonumber(node.inc) > (tonumber(ARGV[2]) or 0) and {'superseded', node.inc} or {'lapsed'}
end
if node.state == 'down' then return {'lapsed'} end
local moved = string.match(counter, 'moved=(%d+)') or 0
moved = string.format('%.0f', moved + 1)
redis.call('HDEL', alive, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
redis.call('HSET', alive, node.name, 'inc=' .. node.inc .. ' moved=' .. moved)
return {'ok', moved, node.state, node.drain}
