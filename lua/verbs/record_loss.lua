-- record_loss: note, for people, that the server lost writes that it had acknowledged: numbers that
-- only grow have become smaller.
-- KEYS: losses
-- ALSO: events
-- ARGV: seen keep_s
--   seen: 'scheduler-1 submitted=150->120 p0=77->70': who saw it, and each number before and after
-- RETURNS: 1 for a new loss, 0 for a loss that was noted before
-- ERRORS: PSARGS
-- INVARIANT: a hundred losses are kept at most; no decision rests on them.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1)
--- @include cluster/events

local refusal = bad_number('keep_s', args.keep_s, 1, 31536000)
if refusal then
  return refusal
end
redis.call('HDEL', losses, '') -- deletes nothing; see docs/decisions/0015
if redis.call('HLEN', losses) >= 100 then
  redis.call('DEL', losses)
end
local is_new = redis.call('HSETNX', losses, args.seen, now_ms())
redis.call('EXPIRE', losses, args.keep_s)
if is_new == 1 then
  local by, what = string.match(args.seen, '^(%S+) (.*)$')
  note_event('writes_lost', {by = by, why = what})
end
return is_new
