-- quarantine: keep something damaged for people to look at.
-- KEYS: quarantine
-- ARGV: most entry
--   entry: 'WHO WHERE SIZE WHY', a line break, and the bytes; '' deletes all entries
-- RETURNS: how many are kept
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the newest `most` are kept; an entry that comes again is one entry, of the later time.
-- ATOMICITY: whole.
-- COMPLEXITY: O(log most)
--- @include clock
local most, entry = tonumber(args.most), args.entry
if not most or most < 1 or most > 1e6 then return redis.error_reply('PSARGS quarantine: most is from 1 to 1e6') end
if entry == '' then
  redis.call('DEL', quarantine)
else
  redis.call('ZADD', quarantine, now_ms(), entry)
  redis.call('ZREMRANGEBYRANK', quarantine, 0, -math.floor(most) - 1)
end
return redis.call('ZCARD', quarantine)
