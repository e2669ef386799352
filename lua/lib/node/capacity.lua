-- Change the capacity of a node: its open waiting seats, its offer and its slots, and what follows
-- from them. A script that calls these functions has the keys meta, slots, left and nodes.
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

-- shut_slots: return how many of a node's last slots are shut, because what runs behind its slots
-- has their processes.
local function shut_slots(node)
  local leads = {} -- slot -> whether a lease leads there
  local runs_behind = 0
  local open = node.slots
  each_lease(KEY.slots, node, function(slot, lease)
    leads[slot] = lease.leads
    if lease.leads and slot >= node.slots then
      runs_behind = runs_behind + 1
    end
  end)
  while open > 0 and open + runs_behind > node.slots do
    open = open - 1
    if leads[open] then
      runs_behind = runs_behind + 1
    end
  end
  return node.slots - open
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
  local shut = shut_slots(node)
  node.ahead = shut > 0 and -shut or nil
end

-- take_offer: give a node another score and offer. note: 'SCORE OFFER'; inc: '' for a caller that
-- is not the node's process. Returns nil, or the reply if the node cannot have this offer.
local function take_offer(node, note, inc)
  local score, offer = string.match(note, '^([%d.e+-]+) (slots=%d[^\n]*)$')
  local size = offer and tonumber(string.match(offer, '^slots=(%d+)'))
  if not size or size < 1 or size > 10000 or not tonumber(score) or not well_formed(offer) then
    return redis.error_reply('PSARGS the note of offer is the score and the offer, not ' .. note)
  end
  local has_seats = (node.ahead or -1) >= 0
  if inc == '' or has_seats and size + node.ahead > node.span then
    return {'gone'}
  end
  node.score = score
  node.offer = offer
  resize(node, size)
  if node.state == 'leaving' then
    node.state = 'up'
  end
end

-- write_capacity: write the ledger of a node, and the number of slots of the partition.
local function write_capacity(node)
  local total = 0
  local _, ledger = lost_and_left(KEY.slots, node)
  for _, name in ipairs(redis.call('HKEYS', KEY.nodes)) do
    total = total + (read_node(KEY.nodes, name) or {slots = 0}).slots
  end
  write_left(KEY.left, node.name, ledger)
  redis.call('HSET', KEY.meta, 'slots', total)
end
