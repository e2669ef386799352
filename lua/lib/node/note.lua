-- The note beside a node's record. While the record has a drain (drain=1 or 2), the note is its terms: for example
-- 'deadline_s=600: a new disk', or 'no deadline'. The note of a suspect node says why. Other nodes have none.

--- @include cluster/events

-- is_terms: return whether a note is the terms of a drain.
local function is_terms(note)
  local head = string.match(note .. ': ', '^(.-): ')
  local whole, rest = string.match(head, '^deadline_s=(%d+)(.*)$')
  if not whole then return head == 'no deadline' end
  return #whole < 10 and (rest == '' or (#rest < 11 and string.find(rest, '^%.%d+$') ~= nil))
end

-- note_of: return a node's note, or what the note must be where it contradicts the record. It writes nothing.
local function note_of(node, note)
  if node.drain ~= '0' then return is_terms(note) and note or 'no deadline' end
  if is_terms(note) then return '' end
  return note == '' and node.state == 'suspect' and 'why it is suspect is lost' or note
end

-- tell_change: add the event of a change of a node's drain or state, if there is one.
local function tell_change(node, state, drain, note)
  local word = node.drain ~= drain and ({['0'] = 'undrained', ['1'] = 'drained', ['2'] = 'drain_over'})[node.drain]
  local states = {suspect = 'suspect', leaving = 'leaving', up = state == 'suspect' and 'trusted' or nil}
  word = word or node.state ~= state and states[node.state]
  local why = (word == 'drained' or word == 'drain_over' or word == 'suspect') and note or nil
  if word then note_event(word, {node = node.name, why = why}) end
end
