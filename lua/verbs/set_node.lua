-- set_node: say whether a node takes new claims: drain, over, undrain; suspect, trust; leaving; ahead; offer. Its runs go on.
-- KEYS: meta slots free left nodes notes
-- ALSO: events
-- ARGV: channel partition node inc word note
--   inc: '' for any process of that name (an operator), else the incarnation that is meant
--   note: of drain its terms, 'deadline_s=600: TEXT' or 'no deadline: TEXT' ('' is 'no deadline'), for people and the leader; of
--   over the terms of the drain whose deadline has passed, so that the agent ends the runs; of suspect the reason; of ahead how
--   many waiting seats are open; of offer 'SCORE OFFER', as the node's process has them: its pool or its queues have changed,
--   what ran behind its slots has ended, or its record is wrong
-- RETURNS: {ok, state, drain} or {gone}; drain is 0, 1, or 2 once its deadline has passed
-- ERRORS: PSARGS PSWORD
-- INVARIANT: the bits of a node that takes no claims are 0; a drain survives the node's restart, a suspicion does not. A node
--   with fewer slots than before gets no claim while it runs as many tasks as it has slots.
-- ATOMICITY: the bits go with the state; what is left, the count of slots and the span go with the offer. If slots or
--   waiting seats open, the scheduler that has waited longest for this partition hears of it, as of a release.
-- COMPLEXITY: O(span), of offer O(nodes of the partition + span)
--- @include node/free_bits
--- @include kind/fits
--- @include node/note
--- @include node/amounts_left
local name, inc, word, note = args.node, args.inc, args.word, args.note

-- shut_slots: return how many of a node's last slots are shut, because what runs behind its slots has their processes.
local function shut_slots(node)
  local leads, behind, open = {}, 0, node.slots
  each_lease(slots, node, function(slot, lease)
    leads[slot] = lease.leads
    if lease.leads and slot >= node.slots then behind = behind + 1 end
  end)
  while open > 0 and open + behind > node.slots do
    open = open - 1
    if leads[open] then behind = behind + 1 end
  end
  return node.slots - open
end

-- resize: give a node another number of slots. It moves to other bits if the next node's follow its own.
local function resize(node, size)
  node.slots = size
  if node.ahead and node.ahead >= 0 then return end -- it has waiting seats: its pool keeps its size
  if size > node.span then
    node.first = lowest_gap(nodes, name, size)
    node.span = size
  end
  local shut = shut_slots(node)
  node.ahead = shut > 0 and -shut or nil
end

if note == '' then note = word == 'suspect' and 'no reason was given' or 'no deadline' end
if (word == 'drain' and not is_terms(note)) or (word == 'suspect' and is_terms(note)) then
  return redis.error_reply("PSARGS 'deadline_s=SECONDS: TEXT' or 'no deadline: TEXT' is the note of a drain, and of nothing else")
end
local node = read_node(nodes, name)
if not node or (inc ~= '' and inc ~= node.inc) then return {'gone'} end
local damaged = bad_lease(slots, node)
if damaged then return damaged end
local state, drain, ahead, before = node.state, node.drain, node.ahead, redis.call('HGET', notes, name) or ''
local place = {first = node.first, span = node.span}
local after, changed = before, false
if word == 'drain' then
  if drain ~= '2' or before ~= note then node.drain, after = '1', note end
elseif word == 'over' then if drain == '1' and before == note then node.drain = '2' end
elseif word == 'undrain' then
  node.drain, after = '0', ''
elseif word == 'suspect' then
  if state == 'up' and drain == '0' then node.state, after = 'suspect', note end
elseif word == 'trust' then
  if drain == '0' and not is_terms(before) then after = '' end -- terms alone: a damaged drain, which repair_partition restores
elseif word == 'ahead' then
  local seats = string.find(note, '^%d%d?%d?%d?$') and note + 0
  if not seats then
    return redis.error_reply('PSARGS the note of ahead is how many of the waiting seats are open, not ' .. note)
  end
  if seats > node.span - node.slots then return {'gone'} end -- after lost writes another process has this incarnation
  if not node.ahead or node.ahead < 0 then return {'ok', state, drain} end
  node.ahead = seats
elseif word == 'offer' then
  local score, offer = string.match(note, '^([%d.e+-]+) (slots=%d[^\n]*)$')
  local size = offer and tonumber(string.match(offer, '^slots=(%d+)'))
  if not size or size < 1 or size > 10000 or not tonumber(score) or not well_formed(offer) then
    return redis.error_reply('PSARGS the note of offer is the score and the offer, not ' .. note)
  end
  if inc == '' or (node.ahead or -1) >= 0 and size + node.ahead > node.span then return {'gone'} end
  changed = node.score ~= score or node.offer ~= offer
  node.score, node.offer = score, offer
  resize(node, size)
  if state == 'leaving' then node.state = 'up' end
elseif word ~= 'leaving' then
  return redis.error_reply('PSWORD drain, over, undrain, suspect, trust, leaving, ahead or offer, not ' .. word)
end
if state == 'suspect' and word ~= 'suspect' and word ~= 'ahead' and word ~= 'offer' then node.state = 'up' end
if word == 'leaving' and node.state == 'up' then node.state = 'leaving' end
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if after == '' then redis.call('HDEL', notes, name) elseif after ~= before then redis.call('HSET', notes, name, after) end
if changed or node.state ~= state or node.drain ~= drain or node.ahead ~= ahead then
  local closed = node.first ~= place.first and clear_bits(meta, free, place) or 0
  write_node(nodes, node)
  local opened = write_bits(meta, slots, free, node) - closed
  tell_change(node, state, drain, note)
  if changed then
    local total, _, rest = 0, lost_and_left(slots, node)
    for _, other in ipairs(redis.call('HKEYS', nodes)) do total = total + (read_node(nodes, other) or {slots = 0}).slots end
    write_left(left, name, rest)
    redis.call('HSET', meta, 'slots', total)
  end
  if node.ahead ~= ahead and not changed then -- bits alone: claims on the node are judged as before
    redis.call('HINCRBY', meta, 'version', 1)
  else
    changed_nodes(meta)
  end
  tell_opened(args.channel, args.partition, meta, opened)
end
return {'ok', node.state, node.drain}
