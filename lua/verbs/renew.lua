-- renew: move a node's counter, which keeps its lease, or tell its agent that the lease is lost.
-- KEYS: nodes alive
-- ALSO: meta slots free
-- READS: nodes alive
-- ARGV: node inc
-- RETURNS: {ok, moved, state, drain}, {superseded, inc} or {lapsed}
--   ok: the counter is `moved` now, and drain is 3 once the time of the node's notice has come;
--   superseded: a newer process has the node's name, with the incarnation inc
--   lapsed: the node is down, and its process must register again
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: only the node's present incarnation, while up or leaving, moves the counter. A record
--   that contradicts the counter is corrected: no script writes the record without the counter, so
--   the process that the counter names was not given up. A node that is up again has its bits
--   again.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1); O(slots of the node) if its record is corrected
--- @include node/free_bits
--- @include node/heartbeat
--- @include node/record

-- answer_stale: return the reply to an agent whose incarnation is not the present one.
-- inc: the incarnation of the counter. An incarnation that the server has forgotten registers again
-- (docs/decisions/0016).
local function answer_stale(node, inc, nodes, alive)
  if inc ~= node.inc then -- no process has registered as the record's incarnation
    return redis.error_reply(
      string.format('PSRECORD %s has at %s another incarnation than %s', nodes, node.name, alive))
  end
  local is_superseded = tonumber(node.inc) > (tonumber(args.inc) or 0)
  return is_superseded and {'superseded', node.inc} or {'lapsed'}
end

-- correct_record: make a record that contradicts the counter say what the counter says.
local function correct_record(node, inc, meta, slots, free, nodes)
  node.inc = inc
  if node.state == 'down' then
    node.state = 'up'
  end
  -- These three commands come first: they raise an error for a key of another type before the
  -- script writes anything else.
  redis.call('HGET', slots, '')
  redis.call('GETBIT', free, 0)
  changed_nodes(meta)
  write_node(nodes, node)
  write_bits(meta, slots, free, node)
end

local node = read_node(nodes, args.node)
if not node then
  return bad_node(nodes, args.node) or {'lapsed'}
end
local inc, moved, since = parse_counter(redis.call('HGET', alive, node.name))
local is_named = inc == args.inc and not since -- the counter is of this incarnation, and not down
if node.inc ~= args.inc and not is_named then
  return in_full().answer_stale(node, inc, nodes, alive)
end
if node.state == 'down' and not is_named then
  return {'lapsed'}
end
moved = string.format('%d', (moved or 0) + 1)
redis.call('HDEL', alive, '') -- deletes nothing; see docs/decisions/0015
if is_named and (node.inc ~= inc or node.state == 'down') then
  in_full().correct_record(node, inc, meta, slots, free, nodes)
end
redis.call('HSET', alive, node.name, counter_text(node.inc, moved))
return {'ok', moved, node.state, node.notice and is_over(node) and '3' or node.drain}
