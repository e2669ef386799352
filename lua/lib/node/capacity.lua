-- Change what a node can take: its open waiting seats, its offer, its capacity and its slots, and
-- what follows from them. A script that calls these functions has the keys meta, slots, left and
-- nodes.
--- @include kind/fits
--- @include node/free_bits
--- @include node/amounts_left

-- open_seats: open as many waiting seats as `note` says. Returns nil; or the reply of a call that
-- cannot open them, or finds none.
local function open_seats(node, note)
  local seats = string.find(note, '^%d%d?%d?%d?$') and note + 0
  if not seats then
    return redis.error_reply(
      'PSARGS the note of ahead is how many of the waiting seats are open, not ' .. note)
  end
  if seats > node.span - node.slots then -- after lost writes another process has this incarnation
    return {'gone'}
  end
  if not node.ahead or node.ahead < 0 then
    return {'ok', node.state, node.drain}
  end
  node.ahead = seats
end

-- shut_slots: shut the last slots of a node for which there is no room. The open slots and what is
-- held behind them are no more than the capacity of the node, counted in slots; without a capacity
-- no more than its slots, counted in tasks, which have a process each.
local function shut_slots(node)
  local capacity = capacity_amounts(node.capacity).slots
  local limit = capacity or node.slots
  local open = math.min(limit, node.slots)
  local counts = {} -- slot -> whether its lease counts
  local held_behind = 0
  each_lease(KEY.slots, node, function(slot, lease)
    counts[slot] = capacity and true or lease.leads
    if counts[slot] and slot >= open then
      held_behind = held_behind + 1
    end
  end)
  while open > 0 and open + held_behind > limit do
    open = open - 1
    if counts[open] then
      held_behind = held_behind + 1
    end
  end
  node.ahead = open < node.slots and open - node.slots or nil
end

-- resize: give a node another number of slots. The node moves to other bits if the bits behind its
-- own are not free. A node with waiting seats keeps the size of its pool.
local function resize(node, size)
  node.slots = size
  if node.ahead and node.ahead >= 0 then
    return
  end
  if size > node.span then
    node.first = lowest_gap(KEY.nodes, node.name, size)
    node.span = size
  end
  shut_slots(node)
end

-- is_within: return whether a capacity is of amounts that an offer has, and no more than that.
-- capacity: nil if the node can give what it offers.
local function is_within(capacity, offer)
  if not capacity then
    return true
  end
  local offered = amounts(offer)
  local limits = capacity_amounts(capacity)
  for name in pairs(limits) do
    if not PARTS[name] and not offered[name] then
      return false
    end
  end
  return is_capacity(capacity) and is_enough(offered, limits)
end

-- take_offer: give a node another score, capacity and offer. note: 'SCORE OFFER' or 'SCORE
-- capacity=CAPACITY OFFER'; inc: '' for a caller that is not the node's process. Returns nil, or
-- the reply if the node cannot have this offer.
local function take_offer(node, note, inc)
  local score, words = string.match(note, '^(%S+) ([^\n]+)$')
  local capacity, behind = string.match(words or '', '^capacity=(%S+) ([^\n]+)$')
  local offer = behind or words
  local size = offer and tonumber(string.match(offer, '^slots=(%d+)'))
  local is_sound = size and size > 0 and size <= 10000 and tonumber(score) and well_formed(offer)
  local has_seats = (node.ahead or -1) >= 0
  if not is_sound or not is_within(capacity, offer) or has_seats and capacity then
    return redis.error_reply('PSARGS the note of offer is the score and the offer, not ' .. note)
  end
  if inc == '' or has_seats and size + node.ahead > node.span then
    return {'gone'}
  end
  node.score = score
  node.offer = offer
  node.capacity = capacity
  resize(node, size)
  if node.state == 'leaving' then
    node.state = 'up'
  end
end

-- write_ledger: write the ledger of a node.
local function write_ledger(node)
  local _, ledger = lost_and_left(KEY.slots, node)
  write_left(KEY.left, node.name, ledger)
end

-- write_total: write the number of slots of the partition.
local function write_total()
  local total = 0
  for _, name in ipairs(redis.call('HKEYS', KEY.nodes)) do
    total = total + (read_node(KEY.nodes, name) or {slots = 0}).slots
  end
  redis.call('HSET', KEY.meta, 'slots', total)
end
