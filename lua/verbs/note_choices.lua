-- note_choices: keep why schedulers chose the places of some tasks, for people: of the newest `most` to twice as many.
-- KEYS: choices choices_1
-- ARGV: count most (id text)*
-- RETURNS: how many choices the newest generation has now
-- ERRORS: PSARGS
-- INVARIANT: nothing else reads these keys: they may be deleted at any time.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count); a full generation is forgotten in the background
--- @include call/batch
local bad = bad_number('most', args.most, 1, 100000)
if bad then return bad end
local fields = {}
for _, row in rows() do fields[#fields + 1], fields[#fields + 2] = row.id, row.text end
redis.call('HDEL', choices, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if redis.call('HLEN', choices) >= tonumber(args.most) then
  redis.call('UNLINK', choices_1)
  redis.call('RENAME', choices, choices_1)
end
write_all('HSET', choices, fields)
return redis.call('HLEN', choices)
