-- book: keep these nodes for kinds of task that have waited long, and no others. Schedulers obey while the key is there.
-- KEYS: bookings
-- ARGV: count keep_s (node text)*
--   text: 'from=MS task=ID KIND', when the node is expected to be free, the first task of the kind, and the kind
-- RETURNS: how many nodes are booked
-- ERRORS: PSARGS
-- INVARIANT: no script reads the key: a booking only keeps other tasks waiting, and lapses with its leader.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include batch
local bad = bad_number('keep_s', args.keep_s, 1, 31536000)
if bad then return bad end
local fields = {}
for _, row in rows() do fields[#fields + 1], fields[#fields + 2] = row.node, row.text end
redis.call('HDEL', bookings, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
redis.call('DEL', bookings)
if #fields > 0 then
  write_all('HSET', bookings, fields)
  redis.call('EXPIRE', bookings, args.keep_s)
end
return count
