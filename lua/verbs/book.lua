-- book: keep these nodes, and no other nodes, for tasks that have waited long. Schedulers obey
-- while the key exists.
-- KEYS: bookings
-- ALSO: events
-- ARGV: count keep_s (node text)*
--   text: 'from=MS at=MS task=ID KIND': when the node is expected to be free, since when the node
--     is kept, the task, and the task's kind
-- RETURNS: the number of booked nodes
-- ERRORS: PSARGS
-- INVARIANT: no other script reads the key. A booking only keeps other tasks waiting, and lapses
--   with its leader.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count)
--- @include call/batch
--- @include cluster/events

-- read_rows: return the nodes, and {node, text, ...} for a write.
local function read_rows()
  local nodes = {}
  local fields = {}
  for i, row in rows() do
    nodes[i] = row.node
    fields[#fields + 1] = row.node
    fields[#fields + 1] = row.text
  end
  return nodes, fields
end

-- note_bookings: add an event for each node that is booked for another task than before.
local function note_bookings(texts_before)
  for _, row in rows() do
    local task, name = string.match(row.text, ' task=(%S+) (%S+)')
    local task_before = string.match(texts_before[row.node] or '', ' task=(%S+)')
    if task and task ~= task_before then
      note_event('booked', {node = row.node, task = task, name = name})
    end
  end
end

local refusal = bad_number('keep_s', args.keep_s, 1, 31536000)
if refusal then
  return refusal
end
local nodes, fields = read_rows()
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', bookings, '')
local texts_before = read_fields(bookings, nodes)
redis.call('DEL', bookings)
if #fields > 0 then
  write_all('HSET', bookings, fields)
  redis.call('EXPIRE', bookings, args.keep_s)
end
note_bookings(texts_before)
return count
