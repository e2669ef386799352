-- renew_scheduler: move a scheduler's counter, which keeps its membership, and the leader's counter
-- if the scheduler leads.
-- KEYS: schedulers leader stats
-- ALSO: events
-- ARGV: scheduler seen_leader stay lost at_most (name value)*
--   seen_leader: '' or the leader's text that did not move for a lease: then the caller takes over
--   stay: '' leaves the cluster
--   lost: '' or 'NAME COUNTER' of a member whose counter did not move
--   at_most: maximum number of members; 0 for any number. A scheduler that is not among the members
--   of the reply stands by
-- RETURNS: {leader text, members' epoch, (scheduler, counter)*}
-- ERRORS: PSARGS
-- INVARIANT: the members' epoch grows when a member joins, leaves or is lost. Two leaders at once
--   are harmless. A member's counter begins at 10^8 times the epoch of its joining, so that no two
--   memberships have the same counters.
-- ATOMICITY: membership and leader change together.
-- COMPLEXITY: O(schedulers)
--- @include call/batch
--- @include cluster/events

-- remove_strays: remove entries that no member wrote. If the entry of a member is removed by
-- mistake, the entry comes back with the member's next renewal.
local function remove_strays()
  local members = redis.call('HGETALL', schedulers)
  for i = 1, #members, 2 do
    local name = members[i]
    local counter = members[i + 1]
    local has_name = string.find(name, '^%w[%w_.-]*$')
    local has_counter = string.find(counter, '^%d+$') and #counter < 16
    if not (has_name and has_counter) then
      redis.call('HDEL', schedulers, name)
    end
  end
end

-- remove_lost: remove the member whose counter the caller saw standing still, if the counter has
-- not moved since. Returns whether the member was removed.
local function remove_lost(me)
  local name, counter = string.match(args.lost, '^(%S+) (%d+)$')
  if not name or redis.call('HGET', schedulers, name) ~= counter then
    return false
  end
  redis.call('HDEL', schedulers, name)
  note_event('lost', {scheduler = name, by = me})
  return true
end

-- has_room: return whether one more scheduler may join.
local function has_room()
  local at_most = tonumber(args.at_most)
  return at_most == 0 or redis.call('HLEN', schedulers) < at_most
end

-- join: add the caller to the members. Its counter begins at 10^8 times the epoch of its joining.
local function join(me)
  local epoch = tonumber(redis.call('HGET', leader, 'epoch') or 0) + 1
  redis.call('HSET', schedulers, me, string.format('%d', epoch * 1e8))
  note_event('joined', {scheduler = me})
end

-- lead: move the leader's counter if the caller leads, or may take over: there is no leader, or the
-- leader's text did not move for one lease. Returns the leader's text.
local function lead(me, text)
  local holder, moved = string.match(text, '^(%S+) moved=(%d+)$')
  local has_lapsed = args.seen_leader ~= '' and args.seen_leader == text
  if holder and holder ~= me and not has_lapsed then
    return text
  end
  local new_text = string.format('%s moved=%d', me, holder == me and moved + 1 or 1)
  redis.call('HSET', leader, 'holder', new_text)
  if holder ~= me then
    local why = holder and 'in the place of ' .. holder
    note_event('leads', {scheduler = me, why = why})
  end
  return new_text
end

-- write_figures: write the caller's own figures, (name value)* of the call, into `stats` for an
-- hour.
local function write_figures()
  local figures = {}
  for _, row in rows() do
    figures[#figures + 1] = row.name
    figures[#figures + 1] = row.value
  end
  if #figures > 0 then
    write_all('HSET', stats, figures)
    redis.call('EXPIRE', stats, 3600)
  end
end

-- stay: keep the caller a member, or make the caller a member if there is room. Returns whether the
-- caller joined, and the leader's text.
local function stay(me, text)
  local is_member = redis.call('HEXISTS', schedulers, me) == 1
  if not is_member and not has_room() then
    return false, text
  end
  if not is_member then
    join(me)
  end
  redis.call('HINCRBY', schedulers, me, 1)
  local new_text = lead(me, text)
  write_figures()
  return not is_member, new_text
end

-- leave: remove the caller from the members and from the lead. Returns whether the caller was a
-- member, and the leader's text as the caller leaves it.
local function leave(me, text)
  local was_member = redis.call('HDEL', schedulers, me) == 1
  if was_member then
    note_event('left', {scheduler = me})
  end
  if string.match(text, '^(%S+) moved=%d+$') == me then
    redis.call('HDEL', leader, 'holder')
  end
  redis.call('DEL', stats)
  return was_member, ''
end

-- membership: return the reply: the leader's text, the members' epoch, and each member.
local function membership(text)
  local reply = redis.call('HGETALL', schedulers)
  table.insert(reply, 1, tonumber(redis.call('HGET', leader, 'epoch') or 0))
  table.insert(reply, 1, text)
  return reply
end

local refusal = bad_number('at_most', args.at_most, 0, 10000)
if refusal then
  return refusal
end
local me = args.scheduler
redis.call('HDEL', leader, '') -- deletes nothing; see docs/decisions/0015
local size_before = redis.call('HLEN', schedulers)
remove_strays()
local has_lost = remove_lost(me)
local old_text = redis.call('HGET', leader, 'holder') or ''
local has_moved, text
if args.stay == '' then
  has_moved, text = leave(me, old_text)
else
  has_moved, text = stay(me, old_text)
end
if has_lost or has_moved or size_before ~= redis.call('HLEN', schedulers) then
  redis.call('HINCRBY', leader, 'epoch', 1)
end
return membership(text)
