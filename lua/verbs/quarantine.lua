-- quarantine: keep something damaged for people to look at.
-- KEYS: quarantine
-- ALSO: events
-- ARGV: most entry
--   entry: 'WHO WHERE SIZE WHY', a line break, and the bytes; '' deletes all entries
-- RETURNS: how many are kept
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the newest `most` are kept; an entry that comes again is one entry, of the later time.
-- ATOMICITY: whole.
-- COMPLEXITY: O(log most)
--- @include cluster/events
local most, entry = tonumber(args.most), args.entry
if not most or most < 1 or most > 1e6 then return redis.error_reply('PSARGS quarantine: most is from 1 to 1e6') end
if entry == '' then
  redis.call('DEL', quarantine)
else
  local new = redis.call('ZADD', quarantine, now_ms(), entry)
  redis.call('ZREMRANGEBYRANK', quarantine, 0, -math.floor(most) - 1)
  local by, where, why = string.match(entry, '^(%S+) (%S+) %d+ ([^\n]*)')
  if new == 1 and by then note_event('damage', {by = by, why = where .. ': ' .. why}) end
end
return redis.call('ZCARD', quarantine)
