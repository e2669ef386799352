-- quarantine: something damaged that was met is kept for people to look at; the newest ones.
-- KEYS: quarantine
-- ARGV: most entry
--   entry is 'WHO WHERE SIZE WHY', a line break, and the bytes; '' forgets all that is there
-- RETURNS: how many are kept
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: at most `most` are kept; the same entry again is one, of the later time.
-- ATOMICITY: whole.
-- COMPLEXITY: O(log most)
--- @include arguments
--- @include clock
local bad = bad_count('quarantine', 1, 2)
if bad then return bad end
local quarantine, most, entry = KEYS[1], tonumber(ARGV[1]), ARGV[2]
if not most or most < 1 or most > 1e6 then return redis.error_reply('PSARGS quarantine: most is from 1 to 1e6') end
if entry == '' then
  redis.call('DEL', quarantine)
else
  redis.call('ZADD', quarantine, now_ms(), entry)
  redis.call('ZREMRANGEBYRANK', quarantine, 0, -math.floor(most) - 1)
end
return redis.call('ZCARD', quarantine)
