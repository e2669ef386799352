-- take: give a scheduler the first tasks of the kinds for which it has seats, each with its next attempt; end those that have
-- expired; let delayed tasks wait that have come due; and tell the scheduler which lines of `kinds` have changed.
-- KEYS: meta kinds changed later taken outbox pending: task:
-- ARGV: scheduler since most salt retention_s channel waits (kind limit)*
--   since: the version at which the scheduler's copy of `kinds` stands, '0' for none; most: how many changed lines it wants to
--   be told, and how many due tasks are looked at; limit: how many tasks of that kind, 1,000 in all
--   salt: a random suffix that tells its attempts from those of takes that the server lost, docs/decisions/0016
--   task: is the prefix of the task records: only the queues of the kinds know which tasks they are; all have one tag
--   waits: 'wait' to be woken when the next kind begins to wait; 'wake' to wake another scheduler that waits
-- RETURNS: {version, now_ms, due_ms, anew, more, changes, tasks}; version: where the copy stands after these changes; due_ms:
--   when the next task in `later` is due, '' if there is none; anew: 1 if the copy is to be dropped first; more: 1 if there are
--   more changes; changes: (kind, line or '')*, in the order of their versions; tasks: (row, id, attempt, ready_ms)*, ready_ms:
--   since when it could be taken; attempt '' marks a task that failed because its record is damaged, and ready_ms says why
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and in no kind's queue; its attempt was never given out before; it has not expired by
--   the server's clock: a promise about lateness, not a lease.
-- ATOMICITY: a task is taken by one scheduler only; the tasks and the lines are of one moment.
-- COMPLEXITY: O(limit * log pending + most + waiting schedulers)
--- @include batch
--- @include changes
--- @include queue
local bad = bad_number('most', args.most, 1, 10000) or bad_retention(args.retention_s) or bad_since(args.since)
local limit = 0
for _, row in rows() do
  bad = bad or bad_number('limit', row.limit, 0, 1000) or bad_kind(pending_prefix, row.kind)
  if bad then return bad end
  limit = limit + row.limit
end
if bad or limit > 1000 then return bad or redis.error_reply('PSARGS take gives 1,000 tasks at most') end
local scheduler, salt, retention_s = args.scheduler, args.salt, args.retention_s
local now, homes = now_ms(), {}
local due_ids = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, args.most)
for i, id in ipairs(due_ids) do
  local key = task_prefix .. id
  homes[i] = redis.call('TYPE', key).ok == 'hash' and home_of(key)
  bad = homes[i] and bad_kind(pending_prefix, homes[i].kind)
  if bad then return bad end
end
redis.call('ZADD', changed, 'XX', 0, '') -- changes nothing; a full server refuses it, docs/decisions/0015
write_all('ZREM', later, due_ids)
for i, id in ipairs(due_ids) do
  if homes[i] then enter(homes[i].kind, id, homes[i].order) end
end

local tasks, owners = {}, {}
local function append(...)
  for _, word in ipairs({...}) do tasks[#tasks + 1] = word end
end
for number, row in rows() do
  local popped = pop(row.kind, row.limit)
  for i = 1, #popped, 2 do
    local id, key = popped[i], task_prefix .. popped[i]
    local state, attempt, needs, name, ready, due =
      unpack(redis.pcall('HMGET', key, 'state', 'attempt', 'needs', 'name', 'ready_ms', 'expires_ms'))
    local broken = flaw(attempt, needs, name)
    local gone = FINAL[state] or HELD[state] or (broken and redis.call('TYPE', key).ok ~= 'hash') -- it is in no index any more
    if broken and not gone then
      local why = 'its record is damaged: ' .. broken
      to_final(key, 'failed', now, why, retention_s)
      to_outbox(id, 'failed', why)
      append(number, id, '', why)
    elseif not gone and is_past(due, now) then
      to_expired(key, id, now, retention_s)
    elseif not gone then
      local takes, life = string.match(attempt, '^(%d+)@(%d+)')
      attempt = string.format('%.0f@%s%s', takes + 1, life, salt)
      redis.call('HSET', key, 'state', 'taken', 'attempt', attempt, 'scheduler', scheduler, 'taken_ms', now)
      owners[#owners + 1], owners[#owners + 2] = id, scheduler
      append(number, id, attempt, string.match(ready or '', '^%d+$') or now)
    end
  end
end
write_all('HSET', taken, owners)
write_outbox(outbox)
write_kinds(meta, kinds, changed)
local version, anew, more, changes = changes_since(kinds, changed, args.since, args.most)
if args.waits == 'wake' then wake(args.channel, meta, scheduler) end
if args.waits == 'wait' then wait_in(meta, scheduler) end
return {version, now, redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or '', anew, more, changes, tasks}
