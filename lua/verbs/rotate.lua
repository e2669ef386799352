-- rotate: forget the oldest generation of tasks that have ended, and begin a new one, twice in a retention.
-- KEYS: meta ended ended_1 ended_2
-- ARGV: retention_s
-- RETURNS: 1 if a generation has begun, else 0
-- ERRORS: PSARGS
-- INVARIANT: the record of an ended task lives for 1 to 1.5 retentions, and longer only while there is no leader.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1); the memory of the oldest generation is freed in the background
--- @include call/clock
local bad = bad_retention(args.retention_s)
if bad then return bad end
local now, began = tonumber(now_ms()), redis.call('HGET', meta, 'rotated_ms')
local since = began and string.find(began, '^%d+$') and #began < 16 and tonumber(began)
if since and since <= now and now - since < args.retention_s * 500 then return 0 end
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
redis.call('HSET', meta, 'rotated_ms', string.format('%d', now))
if not since or since > now then return 0 end
redis.call('UNLINK', ended_2)
if redis.call('EXISTS', ended_1) == 1 then redis.call('RENAME', ended_1, ended_2) end
if redis.call('EXISTS', ended) == 1 then redis.call('RENAME', ended, ended_1) end
return 1
