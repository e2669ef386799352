-- quarantine: keep a damaged value for people to look at.
-- KEYS: quarantine
-- ALSO: events
-- ARGV: most entry
--   entry: 'WHO WHERE SIZE WHY', a line break, and the bytes; '' deletes all entries
-- RETURNS: the number of entries that are kept
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the newest `most` entries are kept. An entry that comes again is one entry, of the
--   later time.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(log most)
--- @include cluster/events

-- add_entry: add an entry, and remove the oldest entries beyond the limit.
local function add_entry(entry, limit)
  local is_new = redis.call('ZADD', quarantine, now_ms(), entry) == 1
  redis.call('ZREMRANGEBYRANK', quarantine, 0, -math.floor(limit) - 1)
  local by, where, why = string.match(entry, '^(%S+) (%S+) %d+ ([^\n]*)')
  if is_new and by then
    note_event('damage', {by = by, why = where .. ': ' .. why})
  end
end

local limit = tonumber(args.most)
if not limit or limit < 1 or limit > 1e6 then
  return redis.error_reply('PSARGS quarantine: most is from 1 to 1e6')
end
if args.entry == '' then
  redis.call('DEL', quarantine)
else
  add_entry(args.entry, limit)
end
return redis.call('ZCARD', quarantine)
