-- renew_scheduler: move a scheduler's counter, which keeps its membership, and the leader's counter if it leads.
-- KEYS: schedulers leader stats
-- ALSO: events
-- ARGV: scheduler seen_leader stay lost at_most (name value)*
--   seen_leader: '' or the leader's text that did not move for one lease: then the caller takes over; stay: '' leaves
--   the cluster; lost: '' or 'NAME COUNTER' of a member whose counter did not move; at_most: 0 always joins, else only
--   while there are fewer members: a scheduler that is not among the members of the reply stands by
-- RETURNS: {leader text, members' epoch, (scheduler, counter)*}
-- ERRORS: PSARGS
-- INVARIANT: the members' epoch grows when one joins, leaves or is lost; two leaders at once are harmless; a member's
--   counter begins at 10^8 times the epoch of its joining, so that no two memberships have the same counters.
-- ATOMICITY: membership and leader change together.
-- COMPLEXITY: O(schedulers)
--- @include call/batch
--- @include cluster/events
local bad = bad_number('at_most', args.at_most, 0, 10000)
if bad then return bad end
local me, seen, stay = args.scheduler, args.seen_leader, args.stay ~= ''
redis.call('HDEL', leader, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
local before, members = redis.call('HLEN', schedulers), redis.call('HGETALL', schedulers)
for i = 1, #members, 2 do -- remove what no member wrote; a member's own entry would come back with its next renewal
  local name, counter = members[i], members[i + 1]
  local sound = string.find(name, '^%w[%w_.-]*$') and string.find(counter, '^%d+$') and #counter < 16
  if not sound then redis.call('HDEL', schedulers, name) end
end
local changed = false
local lost_name, lost_counter = string.match(args.lost, '^(%S+) (%d+)$')
if lost_name and redis.call('HGET', schedulers, lost_name) == lost_counter then
  redis.call('HDEL', schedulers, lost_name)
  note_event('lost', {scheduler = lost_name, by = me})
  changed = true
end
local text = redis.call('HGET', leader, 'holder') or ''
local holder, moved = string.match(text, '^(%S+) moved=(%d+)$')
local member = redis.call('HEXISTS', schedulers, me) == 1
local at_most = tonumber(args.at_most)
if stay and (member or at_most == 0 or redis.call('HLEN', schedulers) < at_most) then
  if not member then
    changed = true
    local life = tonumber(redis.call('HGET', leader, 'epoch') or 0) + 1
    redis.call('HSET', schedulers, me, string.format('%d', life * 1e8))
    note_event('joined', {scheduler = me})
  end
  redis.call('HINCRBY', schedulers, me, 1)
  if not holder or holder == me or (seen ~= '' and seen == text) then
    text = string.format('%s moved=%d', me, holder == me and moved + 1 or 1)
    redis.call('HSET', leader, 'holder', text)
    if holder ~= me then note_event('leads', {scheduler = me, why = holder and 'in the place of ' .. holder}) end
  end
  local figures = {}
  for _, row in rows() do figures[#figures + 1], figures[#figures + 2] = row.name, row.value end
  if #figures > 0 then
    write_all('HSET', stats, figures)
    redis.call('EXPIRE', stats, 3600)
  end
elseif not stay then
  if redis.call('HDEL', schedulers, me) == 1 then
    note_event('left', {scheduler = me})
    changed = true
  end
  if holder == me then redis.call('HDEL', leader, 'holder') end
  redis.call('DEL', stats)
  text = ''
end
if changed or before ~= redis.call('HLEN', schedulers) then redis.call('HINCRBY', leader, 'epoch', 1) end
local reply = redis.call('HGETALL', schedulers)
table.insert(reply, 1, tonumber(redis.call('HGET', leader, 'epoch') or 0))
table.insert(reply, 1, text)
return reply
