-- Check the record of a node against its heartbeat counter and its note. A script that calls
-- judge_record has the keys nodes, alive and notes.
--- @include node/heartbeat
--- @include node/record
--- @include node/note
local NAME = '^%w[%w_.@-]*$' -- the pattern of a node's name
local GAP = 1000000 -- maximum number of bits between two nodes: forgotten nodes leave no larger gap

-- counter_of: return the counter of a node: {inc, down, text}; inc is nil if the text is no
-- counter.
local function counter_of(text)
  local inc, _, since = parse_counter(text)
  return {inc = inc, down = since ~= nil, text = text}
end

-- judge_record: report a record that contradicts its counter or its note, and correct `node`: its
-- drain, its state and its note. `note` is nil if the node has no note.
-- is_misplaced: the bits of the node are where no node's bits may be.
local function judge_record(node, counter, note, is_misplaced, report)
  local name = node.name
  local text = note or ''
  -- The note has the terms of a drain, and the record has no drain: write the drain back.
  local drain = node.drain == '0' and is_terms(text) and '1' or node.drain
  local is_drained_suspect = drain ~= '0' and node.state == 'suspect'
  if is_misplaced or drain ~= node.drain or is_drained_suspect then
    report(KEY.nodes, name, node.text)
  end
  if not counter or counter.inc ~= node.inc or counter.down ~= (node.state == 'down') then
    report(KEY.alive, name, counter and counter.text or 'no counter')
  end
  node.drain = drain
  node.state = is_drained_suspect and 'up' or node.state
  node.note = note_of(node, text)
  if node.note ~= text then
    report(KEY.notes, name, note or 'no note')
  end
end

-- incarnations_leased: return {'NODE INCARNATION' -> true} of the leases of a partition.
-- each_field: calls a function with each field and text of a hash.
local function incarnations_leased(each_field, slots)
  local leased = {}
  each_field(slots, function(_, text)
    local name, inc = string.match(text, ' p%d+ ([^ /]+)/[%d,]+ inc=(%d+)')
    if name then
      leased[name .. ' ' .. inc] = true
    end
  end)
  return leased
end

-- is_contradicted: return whether a record is wrong by the counter of its node. A counter without
-- the mark of a down node says that the node is up. The record is wrong if it says down, or has
-- another incarnation than the counter. Exception: leases name only the incarnation of the record;
-- then the counter is wrong.
-- leased: as incarnations_leased returns it; highest: the highest incarnation of the partition.
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
