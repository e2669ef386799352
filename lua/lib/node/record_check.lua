-- Check the record of a node against its heartbeat counter and its note.
--- @include node/heartbeat
--- @include node/record
--- @include node/note
local NAME = '^%w[%w_.@-]*$'
local GAP = 1000000 -- a node may begin so many bits after the others: forgotten nodes never leave a larger gap

-- counter_of: return the counter of a node: {inc, down, text}; inc is nil if the text is no counter.
local function counter_of(text)
  local inc, _, since = parse_counter(text)
  return {inc = inc, down = since ~= nil, text = text}
end

-- judge_record: report a record that contradicts its counter or its note; write into `node` what it must be. is_apart: its bits
-- are where no node's bits may be.
local function judge_record(node, counter, said, is_apart, nodes, alive, notes, tell)
  local name, note = node.name, said or ''
  local drain = node.drain == '0' and is_terms(note) and '1' or node.drain -- the terms alone: a drain goes on
  local both = drain ~= '0' and node.state == 'suspect'
  if is_apart or drain ~= node.drain or both then tell(nodes, name, node.text) end
  if not counter or counter.inc ~= node.inc or counter.down ~= (node.state == 'down') then
    tell(alive, name, counter and counter.text or 'no counter')
  end
  node.drain, node.state = drain, both and 'up' or node.state
  node.note = note_of(node, note)
  if node.note ~= note then tell(notes, name, said or 'no note') end
end

-- incarnations_leased: return {'NODE INCARNATION' -> true} of the leases of a partition.
local function incarnations_leased(each, slots)
  local leased = {}
  each(slots, function(_, text)
    local name, inc = string.match(text, ' p%d+ ([^ /]+)/[%d,]+ inc=(%d+)')
    if name then
      leased[name .. ' ' .. inc] = true
    end
  end)
  return leased
end

-- is_contradicted: return whether a record is wrong: the counter of its node, which is up, has another incarnation, or the record
-- says down. If leases name the incarnation of the record alone, it is the counter that is wrong.
local function is_contradicted(node, counter, leased, highest)
  local inc = counter and not counter.down and tonumber(counter.inc)
  if not inc or inc > highest then
    return false
  end
  if counter.inc == node.inc then
    return node.state == 'down'
  end
  return not leased[node.name .. ' ' .. node.inc] or leased[node.name .. ' ' .. counter.inc]
end
