-- note_loss: a scheduler saw numbers go back that only grow: the server forgot what it had acknowledged. Kept for people.
-- KEYS: losses
-- ARGV: seen keep_s
--   seen is 'scheduler-1 submitted=150->120 p0=77->70': who saw it, and what was what and is what now
-- RETURNS: 1 if it was not known, else 0
-- ERRORS: PSARGS
-- INVARIANT: the newest hundred or fewer; nothing decides by it.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1)
--- @include arguments
--- @include clock
local bad = bad_count('note_loss', 1, 2) or bad_number('keep_s', ARGV[2], 1, 31536000)
if bad then return bad end
local losses, seen, keep_s = KEYS[1], ARGV[1], ARGV[2]
redis.call('HDEL', losses, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
if redis.call('HLEN', losses) >= 100 then redis.call('DEL', losses) end
local new = redis.call('HSETNX', losses, seen, now_ms())
redis.call('EXPIRE', losses, keep_s)
return new
