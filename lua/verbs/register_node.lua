-- register_node: give a node's name to a process, as a new incarnation; the leader recovers what earlier ones held.
-- KEYS: meta slots free left changed nodes alive lost inbox
-- ALSO: events
-- ARGV: channel partition node known_inc score offer room
--   known_inc: the last incarnation that this process had, or 0; offer: 'slots=4 gpu=2 gpu_model:a100';
--   room: the waiting seats that it has behind its slots, which are shut: set_node opens them
-- RETURNS: {inc, first}
-- ERRORS: PSARGS
-- INVARIANT: incarnations only grow, also after a name was forgotten; what is left is the capacity minus what leases hold.
-- ATOMICITY: record, bits, ledger and lease counter change together. The scheduler that has waited longest for this partition
--   hears of the free slots.
-- COMPLEXITY: O(nodes of the partition + slots and waiting seats of the node)
--- @include node/free_bits
--- @include node/heartbeat
--- @include cluster/events
--- @include node/amounts_left
local name, known_inc, score, offer, room = args.node, tonumber(args.known_inc), args.score, args.offer, tonumber(args.room)

local old = read_node(nodes, name)
local capacity = amounts(offer)
if not (capacity.slots and capacity.slots >= 1 and capacity.slots <= 10000 and well_formed(offer) and known_inc and
    known_inc >= 0 and known_inc < 1e15 and string.find(score, '^[%d.e+-]+$') and tonumber(score) and
    room and room >= 0 and room % 1 == 0 and capacity.slots + room <= 10000) then
  return redis.error_reply('PSARGS register_node needs slots=N in the offer, a number as score, the last incarnation and room')
end
local node = {name = name, state = 'up', drain = old and old.drain or '0', score = score, offer = offer,
  slots = capacity.slots, span = capacity.slots + room, first = 0, ahead = room > 0 and 0 or nil}
capacity.slots = nil
local held = 0
local damaged = bad_node(nodes, name) or bad_lease(slots, old or node)
if damaged then return damaged end
each_lease(slots, old or node, function(slot, lease)
  held, node.span = held + 1, math.max(node.span, slot + 1)
  if lease.leads then ledger_add(capacity, amounts(lease.asked), -1) end
end)

local inc = tonumber(redis.call('HGET', meta, 'inc') or old and old.inc or 0)
node.inc = string.format('%d', math.max(inc, known_inc) + 1)
redis.call('HSET', meta, 'inc', node.inc)
local closed = 0
if old then
  closed = clear_bits(meta, free, old)
  node.first = old.first
end
if not old or node.span > old.span then node.first = lowest_gap(nodes, name, node.span) end
write_node(nodes, node)
local opened = write_bits(meta, slots, free, node) - closed
redis.call('HINCRBY', meta, 'slots', node.slots - (old and old.slots or 0))
write_left(left, name, capacity)
redis.call('HSET', alive, name, counter_text(node.inc, 0))
if held > 0 then redis.call('SADD', lost, name) end
redis.call('DEL', inbox)
changed_nodes(meta)
redis.call('ZADD', changed, 'NX', redis.call('HGET', meta, 'version'), '')
tell_opened(args.channel, args.partition, meta, opened)
note_event('registered', {node = name, why = 'incarnation ' .. node.inc})
return {tonumber(node.inc), node.first}
