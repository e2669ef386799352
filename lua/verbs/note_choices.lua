-- note_choices: keep why schedulers chose the places of some tasks, for people to read. Keeps the
-- newest choices: from `most` to twice as many.
-- KEYS: choices choices_1
-- ARGV: count most (id text)*
-- RETURNS: the number of choices in the newest generation
-- ERRORS: PSARGS
-- INVARIANT: no other script reads these keys. People may delete the keys at any time.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count); a full generation is forgotten in the background
--- @include call/batch
local refusal = bad_number('most', args.most, 1, 100000)
if refusal then
  return refusal
end
local fields = {}
for _, row in rows() do
  fields[#fields + 1] = row.id
  fields[#fields + 1] = row.text
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', choices, '')
if redis.call('HLEN', choices) >= tonumber(args.most) then
  redis.call('UNLINK', choices_1)
  redis.call('RENAME', choices, choices_1)
end
write_all('HSET', choices, fields)
return redis.call('HLEN', choices)
