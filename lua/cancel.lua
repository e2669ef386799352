-- cancel: cancel a task that does not run; ask the agent of one that runs to end it.
-- KEYS: pending later taken placed outbox task
-- ARGV: id retention_s why how
--   how: the signal that ends the run, SIGTERM; 'after' lets the run end, and the task does not run again; 'waiting' leaves a
--   task alone that has a place
-- RETURNS: {cancelled}, {asked} or {none, state}; the state of an unknown id is gone
-- ERRORS: PSARGS
-- INVARIANT: a cancelled task never starts; a cancel that was asked for survives the task's return to pending.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(log pending)
--- @include clock
--- @include queue
local bad = bad_retention(args.retention_s)
if bad then return bad end
local id, how = args.id, args.how
local state, asked = unpack(redis.call('HMGET', task, 'state', 'cancel'))
if not state then return {'none', 'gone'} end
if FINAL[state] then return {'none', state} end
if how == 'waiting' and (state == 'placed' or state == 'running') then return {'none', state} end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if state == 'running' then
  if not asked or how ~= 'after' then redis.call('HSET', task, 'cancel', how) end
  return {'asked'}
end
redis.call('ZREM', pending, id)
redis.call('ZREM', later, id)
redis.call('HDEL', taken, id)
redis.call('HDEL', placed, id)
to_final(task, 'cancelled', now_ms(), args.why, args.retention_s)
to_outbox(outbox, id, 'cancelled', args.why)
return {'cancelled'}
