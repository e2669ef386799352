-- The note beside the record of a node. While the record has a drain (drain=1 or 2), the note is
-- the terms of the drain: 'deadline_s=600: a new disk', or 'no deadline'. The note of a suspect
-- node says why the node is suspect. Other nodes have no note.

--- @include cluster/events
--- @include node/notice

-- is_terms: return whether a note is the terms of a drain.
local function is_terms(note)
  local head = string.match(note .. ': ', '^(.-): ')
  local seconds, fraction = string.match(head, '^deadline_s=(%d+)(.*)$')
  if not seconds then
    return head == 'no deadline'
  end
  local has_fraction = #fraction < 11 and string.find(fraction, '^%.%d+$') ~= nil
  return #seconds < 10 and (fraction == '' or has_fraction)
end

-- note_of: return the note of a node. If the note contradicts the record, return the note that the
-- record asks for. Writes nothing.
local function note_of(node, note)
  if node.drain ~= '0' then
    return is_terms(note) and note or 'no deadline'
  end
  if is_terms(note) then
    return ''
  end
  return note == '' and node.state == 'suspect' and 'why it is suspect is lost' or note
end

-- tell_notice: add the event of a change of a node's notice.
local function tell_notice(node)
  if not node.notice then
    note_event('stays', {node = node.name})
  elseif is_over(node) then
    note_event('notice_over', {node = node.name})
  else
    local seconds = math.ceil((string.match(node.notice, '^%d+') - now_ms()) / 1000)
    note_event('noticed', {node = node.name, why = string.format('in %d s', math.max(0, seconds))})
  end
end

-- capacity_event: return the event of a node that begins or ceases to give less than it offers, and
-- what it gives; nil for another change of the capacity.
local function capacity_event(capacity, old_capacity)
  local given = string.match(capacity or '', '^[^?]*')
  local was_given = string.match(old_capacity or '', '^[^?]*')
  if (given == '') ~= (was_given == '') then
    return given ~= '' and 'shrank' or 'grew', given
  end
end

-- tell_change: add the events of a change of a node, as far as it has changed.
local function tell_change(node, old, note)
  local drains = {['0'] = 'undrained', ['1'] = 'drained', ['2'] = 'drain_over'}
  local states = {suspect = 'suspect', leaving = 'leaving'}
  states.up = old.state == 'suspect' and 'trusted' or nil
  local event = node.drain ~= old.drain and drains[node.drain]
  event = event or node.state ~= old.state and states[node.state]
  local has_reason = event == 'drained' or event == 'drain_over' or event == 'suspect'
  if event then
    note_event(event, {node = node.name, why = has_reason and note or nil})
  end
  if node.notice ~= old.notice then
    in_full().tell_notice(node)
  end
  local change, given = capacity_event(node.capacity, old.capacity)
  if change then
    note_event(change, {node = node.name, why = given})
  end
end
