-- register_node: give a node's name to a process, as a new incarnation. The leader recovers what
-- earlier incarnations held.
-- KEYS: meta slots free left changed nodes alive lost inbox
-- ALSO: events
-- ARGV: channel partition node known_inc score offer room capacity
--   known_inc: the last incarnation of this process, or 0
--   offer: 'slots=4 gpu=2 gpu_model:a100'
--   room: number of waiting seats behind the slots. They are shut; set_node opens them
--   capacity: 'slots=2,gpu=1' if the node can give less than it offers, else ''; see set_node
-- RETURNS: {inc, first}
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: incarnations only grow, also after a name was forgotten. The ledger is the capacity
--   minus the amounts of the leases. No claim wins by which the node holds more than its capacity.
-- ATOMICITY: record, bits, ledger and heartbeat counter change together. The scheduler that has
--   waited longest for this partition hears of the free slots.
-- COMPLEXITY: O(nodes of the partition + slots and waiting seats of the node)
--- @include node/free_bits
--- @include node/heartbeat
--- @include cluster/events
--- @include node/amounts_left
--- @include node/capacity

-- bad_offer: return the error reply for an argument that no node has, or nil.
local function bad_offer(offered, known_inc, room)
  local has_slots = offered and offered >= 1 and offered <= 10000
  local has_score = string.find(args.score, '^[%d.e+-]+$') and tonumber(args.score)
  local has_inc = known_inc and known_inc >= 0 and known_inc < 1e15
  local has_room = room and room >= 0 and room % 1 == 0
  local has_capacity = args.capacity == ''
    or room == 0 and in_full().is_within(args.capacity, args.offer)
  if has_slots and has_score and has_inc and has_room and offered + room <= 10000
      and well_formed(args.offer) and has_capacity then
    return nil
  end
  return redis.error_reply('PSARGS register_node needs slots=N in the offer, a number as score, '
    .. 'the last incarnation, room, and the capacity within the offer')
end

-- new_node: return the record of the new incarnation, without its number and its first bit.
local function new_node(old, slots_offered, room)
  return {
    name = args.node,
    state = 'up',
    drain = old and old.drain or '0',
    notice = old and not is_own(old) and old.notice or nil,
    score = args.score,
    offer = args.offer,
    slots = slots_offered,
    span = slots_offered + room,
    first = 0,
    ahead = room > 0 and 0 or nil,
    capacity = args.capacity ~= '' and args.capacity or nil,
  }
end

-- keep_leases: give a node enough bits for the leases that earlier incarnations left, and subtract
-- the amounts of these leases from the node's capacity. Returns the ledger of the node, and whether
-- there are leases.
local function keep_leases(node, old)
  local ledger = amounts_given(node)
  local has_leases = false
  each_lease(slots, old or node, function(slot, lease)
    has_leases = true
    node.span = math.max(node.span, slot + 1)
    if lease.leads then
      ledger_add(ledger, amounts(lease.asked), -1)
    end
  end)
  if node.capacity then
    in_full().shut_slots(node)
  end
  return ledger, has_leases
end

-- number_incarnation: give a node the next incarnation. An incarnation only grows, also beyond the
-- incarnation that its process knows.
local function number_incarnation(node, old, known_inc)
  local inc = tonumber(redis.call('HGET', meta, 'inc') or old and old.inc or 0)
  node.inc = string.format('%d', math.max(inc, known_inc) + 1)
  redis.call('HSET', meta, 'inc', node.inc)
end

-- place_bits: give a node its bits in `free`: the node's old bits, or the lowest gap that is large
-- enough if the node had fewer bits. Returns how many of the old bits were free.
local function place_bits(node, old)
  local number_free = 0
  if old then
    number_free = clear_bits(meta, free, old)
    node.first = old.first
  end
  if not old or node.span > old.span then
    node.first = lowest_gap(nodes, node.name, node.span)
  end
  return number_free
end

-- write_registration: write a node, its bits, its ledger and its counter, and empty its inbox.
-- has_leases: whether earlier incarnations left leases. Returns how many bits are free now.
local function write_registration(node, old, ledger, has_leases)
  write_node(nodes, node)
  local number_free = write_bits(meta, slots, free, node)
  redis.call('HINCRBY', meta, 'slots', node.slots - (old and old.slots or 0))
  write_left(left, node.name, ledger)
  redis.call('HSET', alive, node.name, counter_text(node.inc, 0))
  if has_leases then
    redis.call('SADD', lost, node.name)
  end
  redis.call('DEL', inbox)
  return number_free
end

local known_inc = tonumber(args.known_inc)
local room = tonumber(args.room)
local old = read_node(nodes, args.node)
local offered = amounts(args.offer).slots
local refusal = bad_offer(offered, known_inc, room)
if refusal then
  return refusal
end
local node = new_node(old, offered, room)
refusal = bad_node(nodes, node.name) or bad_lease(slots, old or node)
if refusal then
  return refusal
end
local ledger, has_leases = keep_leases(node, old)
number_incarnation(node, old, known_inc)
local free_before = place_bits(node, old)
local free_now = write_registration(node, old, ledger, has_leases)
changed_nodes(meta)
redis.call('ZADD', changed, 'NX', redis.call('HGET', meta, 'version'), '')
tell_opened(args.channel, args.partition, meta, free_now - free_before)
note_event('registered', {node = node.name, why = 'incarnation ' .. node.inc})
return {tonumber(node.inc), node.first}
