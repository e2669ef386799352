-- book: keep these nodes for tasks that have waited long, and no others. Schedulers obey while the key is there.
-- KEYS: bookings
-- ALSO: events
-- ARGV: count keep_s (node text)*
--   text: 'from=MS at=MS task=ID KIND', when the node is expected to be free, since when it is kept, the task, its kind
-- RETURNS: how many nodes are booked
-- ERRORS: PSARGS
-- INVARIANT: no script reads the key: a booking only keeps other tasks waiting, and lapses with its leader.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include call/batch
--- @include cluster/events
local bad = bad_number('keep_s', args.keep_s, 1, 31536000)
if bad then return bad end
local fields, nodes = {}, {}
for i, row in rows() do fields[#fields + 1], fields[#fields + 2], nodes[i] = row.node, row.text, row.node end
redis.call('HDEL', bookings, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local before = read_fields(bookings, nodes)
redis.call('DEL', bookings)
if #fields > 0 then
  write_all('HSET', bookings, fields)
  redis.call('EXPIRE', bookings, args.keep_s)
end
for _, row in rows() do
  local task, name = string.match(row.text, ' task=(%S+) (%S+)')
  if task and string.match(before[row.node] or '', ' task=(%S+)') ~= task then
    note_event('booked', {node = row.node, task = task, name = name})
  end
end
return count
