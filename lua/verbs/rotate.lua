-- rotate: forget the oldest generation of tasks that have ended, and begin a new one, twice in a
-- retention.
-- KEYS: meta ended ended_1 ended_2
-- ARGV: retention_s
-- RETURNS: 1 if a generation has begun, else 0
-- ERRORS: PSARGS
-- INVARIANT: the record of an ended task lives for 1 to 1.5 retentions, longer only while there is
--   no leader.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1); the memory of the oldest generation is freed in the background
--- @include call/clock

-- last_rotation: return when the newest generation began (ms); nil if meta has no moment up to now.
local function last_rotation(now)
  local began = redis.call('HGET', meta, 'rotated_ms')
  if not began or #began >= 16 or not string.find(began, '^%d+$') then
    return nil
  end
  return tonumber(began) <= now and tonumber(began) or nil
end

-- shift_generations: forget the oldest generation, and make each other generation one older.
local function shift_generations()
  redis.call('UNLINK', ended_2)
  if redis.call('EXISTS', ended_1) == 1 then
    redis.call('RENAME', ended_1, ended_2)
  end
  if redis.call('EXISTS', ended) == 1 then
    redis.call('RENAME', ended, ended_1)
  end
end

local refusal = bad_retention(args.retention_s)
if refusal then
  return refusal
end
local now = tonumber(now_ms())
local began = last_rotation(now)
local half_retention_ms = args.retention_s * 500
if began and now - began < half_retention_ms then
  return 0
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', meta, '')
redis.call('HSET', meta, 'rotated_ms', string.format('%d', now))
if not began then
  return 0
end
shift_generations()
return 1
