-- cancel: a task that does not run yet is cancelled; of one that runs it is noted, and its agent ends it.
-- KEYS: pending later taken placed outbox task
-- ARGV: id retention_s why how
--   how: 'after' lets a running task end its run, but it does not run again; else the signal to end it with, SIGTERM;
--   'waiting' leaves a task alone that has a place
-- RETURNS: {cancelled}, {asked} or {none, state}; state is gone for an id that is not known
-- ERRORS: PSARGS
-- INVARIANT: a cancelled task never starts; a cancel that was asked for survives the task's return to pending.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(log pending)
--- @include arguments
--- @include clock
--- @include queue
local bad = bad_count('cancel', 6, 4) or bad_retention(ARGV[2])
if bad then return bad end
local pending, later, taken, placed, outbox, key = unpack(KEYS)
local id, retention_s, why, how = unpack(ARGV)
local state, asked = unpack(redis.call('HMGET', key, 'state', 'cancel'))
if not state then return {'none', 'gone'} end
if FINAL[state] then return {'none', state} end
if how == 'waiting' and (state == 'placed' or state == 'running') then return {'none', state} end
redis.call('HDEL', taken, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
if state == 'running' then
  if not asked or how ~= 'after' then redis.call('HSET', key, 'cancel', how) end
  return {'asked'}
end
redis.call('ZREM', pending, id)
redis.call('ZREM', later, id)
redis.call('HDEL', taken, id)
redis.call('HDEL', placed, id)
to_final(key, 'cancelled', now_ms(), why, retention_s)
to_outbox(outbox, id, 'cancelled', why)
return {'cancelled'}
