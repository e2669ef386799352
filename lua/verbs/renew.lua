-- renew: move a node's counter, which keeps its lease, or tell its agent that the lease is lost.
-- KEYS: nodes alive
-- ALSO: meta slots free
-- READS: nodes alive
-- ARGV: node inc
-- RETURNS: {ok, moved, state, drain}, {superseded, inc} (a newer process has the name), {lapsed} (the node is down)
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: only the node's present incarnation, while up or leaving, moves the counter. A record that contradicts the counter
--   is corrected: no script writes one without the other, so the process that the counter names was not given up. A node that
--   is up again has its bits again.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1); O(slots of the node) if its record is corrected
--- @include node/free_bits
--- @include node/heartbeat
--- @include node/record
local node = read_node(nodes, args.node)
if not node then return bad_node(nodes, args.node) or {'lapsed'} end
local inc, moved, since = parse_counter(redis.call('HGET', alive, node.name))
local kept = inc == args.inc and not since
local corrected = kept and (node.inc ~= inc or node.state == 'down')
if node.inc ~= args.inc and not kept then -- an incarnation that the server has forgotten registers again, docs/decisions/0016
  if inc ~= node.inc then -- no process has registered as that
    return redis.error_reply(string.format('PSRECORD %s has at %s another incarnation than %s', nodes, node.name, alive))
  end
  return tonumber(node.inc) > (tonumber(args.inc) or 0) and {'superseded', node.inc} or {'lapsed'}
end
if node.state == 'down' and not kept then
  return {'lapsed'}
end
moved = string.format('%d', (moved or 0) + 1)
redis.call('HDEL', alive, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if corrected then
  node.inc = inc
  if node.state == 'down' then
    node.state = 'up'
  end
  redis.call('HGET', slots, '') -- these three first: a key of another type is found before anything else is written
  redis.call('GETBIT', free, 0)
  in_full().changed_nodes(meta)
  in_full().write_node(nodes, node)
  in_full().write_bits(meta, slots, free, node)
end
redis.call('HSET', alive, node.name, counter_text(node.inc, moved))
return {'ok', moved, node.state, node.drain}
