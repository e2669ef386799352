-- reclaim: mark a node down whose counter did not move for one lease, and list the leases that nobody serves any more.
-- KEYS: meta slots free nodes alive lost
-- ALSO: events
-- ARGV: node inc moved limit
--   moved: the counter that did not move, '' only lists
-- RETURNS: {word, (slot, lease)*}; word: down (now), moved (it renewed after all), listed
-- ERRORS: PSARGS
-- INVARIANT: it frees no slot: the task goes back first, then release frees the slot. It covers the whole span.
-- ATOMICITY: the bits go with the state.
-- COMPLEXITY: O(span)
--- @include node/free_bits
--- @include node/heartbeat
--- @include call/clock
--- @include cluster/events
local bad = bad_number('limit', args.limit, 0, 10000)
if bad then return bad end
local name, inc, moved, limit = args.node, args.inc, args.moved, tonumber(args.limit)
local node = read_node(nodes, name)
if not node then
  redis.call('SREM', lost, name)
  return {'listed'}
end
local damaged = bad_lease(slots, node)
if damaged then return damaged end
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local word = 'listed'
if moved ~= '' then
  local now = redis.call('HGET', alive, name)
  if node.inc == inc and node.state ~= 'down' and now == counter_text(inc, moved) then
    local before = node.state
    word, node.state = 'down', 'down'
    write_node(nodes, node)
    write_bits(meta, slots, free, node)
    redis.call('HSET', alive, name, counter_text(inc, moved, now_ms()))
    changed_nodes(meta)
    note_event('down', {node = name, why = before == 'leaving' and 'it shut down' or 'it did not renew its lease'})
  else
    word = 'moved'
  end
end
local reply, lost_leases = {word}, 0
each_lease(slots, node, function(slot, lease, text)
  if lease.leads and (node.state == 'down' or lease.inc ~= node.inc) then
    lost_leases = lost_leases + 1
    if lost_leases <= limit then
      reply[#reply + 1] = tostring(slot)
      reply[#reply + 1] = text
    end
  end
end)
redis.call(lost_leases > 0 and 'SADD' or 'SREM', lost, name)
return reply
