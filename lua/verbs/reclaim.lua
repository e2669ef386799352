-- reclaim: mark a node down whose counter did not move for one lease, and list the leases that no
-- process serves any more.
-- KEYS: meta slots free nodes alive lost
-- ALSO: events
-- ARGV: node inc moved limit
--   moved: the counter that did not move; '' only lists
-- RETURNS: {word, (slot, lease)*}
--   word: down (the call marked the node down), moved (the counter has moved since), listed (the
--   call only lists)
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the script frees no slot: first requeue puts the task back, then release frees the
--   slot. The script lists the leases of all bits that the node has.
-- ATOMICITY: the bits change with the state.
-- COMPLEXITY: O(span)
--- @include node/free_bits
--- @include node/heartbeat
--- @include call/clock
--- @include cluster/events

-- mark_down: mark a node down, and shut its bits.
local function mark_down(node)
  local why = node.state == 'leaving' and 'it shut down' or 'it did not renew its lease'
  node.state = 'down'
  write_node(nodes, node)
  write_bits(meta, slots, free, node)
  redis.call('HSET', alive, node.name, counter_text(args.inc, args.moved, now_ms()))
  changed_nodes(meta)
  note_event('down', {node = node.name, why = why})
end

-- give_up: mark a node down if its counter is still `moved`. Returns the word of the reply.
local function give_up(node)
  local counter = redis.call('HGET', alive, node.name)
  if node.inc ~= args.inc or node.state == 'down'
      or counter ~= counter_text(args.inc, args.moved) then
    return 'moved'
  end
  mark_down(node)
  return 'down'
end

-- list_lost: append the leases that nobody serves, `limit` at most. Returns whether there are any.
local function list_lost(reply, node, limit)
  local number_lost = 0
  each_lease(slots, node, function(slot, lease, text)
    if lease.leads and (node.state == 'down' or lease.inc ~= node.inc) then
      number_lost = number_lost + 1
      if number_lost <= limit then
        reply[#reply + 1] = tostring(slot)
        reply[#reply + 1] = text
      end
    end
  end)
  return number_lost > 0
end

local refusal = bad_number('limit', args.limit, 0, 10000)
if refusal then
  return refusal
end
local node = read_node(nodes, args.node)
if not node then
  redis.call('SREM', lost, args.node)
  return {'listed'}
end
refusal = bad_lease(slots, node)
if refusal then
  return refusal
end
redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
local reply = {args.moved ~= '' and give_up(node) or 'listed'}
local has_lost = list_lost(reply, node, tonumber(args.limit))
redis.call(has_lost and 'SADD' or 'SREM', lost, node.name)
return reply
