-- renew_scheduler: a scheduler moves its counter, which keeps its membership, and the leader's lease if it has that.
-- KEYS: schedulers leader stats
-- ARGV: scheduler seen_leader stay lost at_most (name value)*
--   seen_leader is '' or the leader's text as the caller saw it stand still for one lease: then the caller takes over;
--   stay '' leaves the cluster; lost is '' or 'NAME COUNTER' of a member seen to stand still; at_most 0 joins in any case,
--   else only while there are fewer members than that: a scheduler that is not among the members of the reply stands by
-- RETURNS: {leader text, members' epoch, (scheduler, counter)*}
-- ERRORS: PSARGS
-- INVARIANT: the members' epoch grows when one joins, leaves or is lost; two leaders at once are harmless; a member's
--   counter begins at 10^8 times the epoch of its joining, so that what was judged of a former life is never seen again.
-- ATOMICITY: membership and leader change together.
-- COMPLEXITY: O(schedulers)
--- @include arguments
local bad = bad_count('renew_scheduler', 3, 5 + 2 * math.max(0, math.ceil((#ARGV - 5) / 2)))
  or bad_number('at_most', ARGV[5], 0, 10000)
if bad then return bad end
local schedulers, leader, stats = unpack(KEYS)
local me, seen, stay, lost = ARGV[1], ARGV[2], ARGV[3] ~= '', ARGV[4]
redis.call('HDEL', leader, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
local before, flat = redis.call('HLEN', schedulers), redis.call('HGETALL', schedulers)
for i = 1, #flat, 2 do -- what is no member's: its own would come back with its next renewal
  local ours = string.find(flat[i], '^%w[%w_.-]*$') and string.find(flat[i + 1], '^%d+$') and #flat[i + 1] < 16
  if not ours then redis.call('HDEL', schedulers, flat[i]) end
end
local changed = false
local lost_name, lost_counter = string.match(lost, '^(%S+) (%d+)$')
if lost_name and redis.call('HGET', schedulers, lost_name) == lost_counter then
  redis.call('HDEL', schedulers, lost_name)
  changed = true
end
local text = redis.call('HGET', leader, 'holder') or ''
local holder, moved = string.match(text, '^(%S+) moved=(%d+)$')
local member = redis.call('HEXISTS', schedulers, me) == 1
local at_most = tonumber(ARGV[5])
if stay and (member or at_most == 0 or redis.call('HLEN', schedulers) < at_most) then
  if not member then
    changed = true
    local life = tonumber(redis.call('HGET', leader, 'epoch') or 0) + 1
    redis.call('HSET', schedulers, me, string.format('%.0f', life * 1e8))
  end
  redis.call('HINCRBY', schedulers, me, 1)
  if not holder or holder == me or (seen ~= '' and seen == text) then
    text = string.format('%s moved=%.0f', me, holder == me and moved + 1 or 1)
    redis.call('HSET', leader, 'holder', text)
  end
  if #ARGV > 5 then
    redis.call('HSET', stats, unpack(ARGV, 6))
    redis.call('EXPIRE', stats, 3600)
  end
elseif not stay then
  changed = redis.call('HDEL', schedulers, me) == 1 or changed
  if holder == me then redis.call('HDEL', leader, 'holder') end
  redis.call('DEL', stats)
  text = ''
end
if changed or before ~= redis.call('HLEN', schedulers) then redis.call('HINCRBY', leader, 'epoch', 1) end
local reply = redis.call('HGETALL', schedulers)
table.insert(reply, 1, tonumber(redis.call('HGET', leader, 'epoch') or 0))
table.insert(reply, 1, text)
return reply
