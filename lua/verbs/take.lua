-- take: give a scheduler the first tasks of the kinds for which it has seats, each with its next attempt; end tasks that have
-- expired; move delayed tasks that have come due to their kinds; and tell the scheduler which lines of `kinds` have changed.
-- KEYS: meta kinds changed later tasks taken running pending:
-- ALSO: messages dead ended ended_1 ended_2 outbox events extra:
-- READS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 outbox
-- ARGV: scheduler since most salt retention_s channel waits (kind limit)*
--   since: the version at which the scheduler's copy of `kinds` stands, '0' for none; most: how many changed lines it wants to
--   be told, and how many due tasks are looked at; limit: how many tasks of that kind, 1,000 in all
--   salt: '.SCHEDULER.RANDOM', the end of its attempts: it tells them from those of others, and from those of takes that the
--   server lost, docs/decisions/0016. If takes were undone, 'u' and their number follow: a take that is undone is not counted
--   waits: 'wait' to be woken when the next kind begins to wait; 'wake' to wake another scheduler that waits
-- RETURNS: {version, now_ms, due_ms, anew, more, changes, tasks}; version: where the copy stands now; due_ms: when the next
--   delayed task is due, or ''; anew: 1 if the copy is to be dropped first; more: 1 if there are more changes; changes: (kind,
--   line or '')*, by their versions; tasks: (row, id, attempt, ready_ms)*, row: 0 if it was delayed; ready_ms: since when it
--   could be taken, and behind a space the node that it avoids; attempt '': its record is damaged, and ready_ms says so
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and in no kind's queue; its attempt was never given out before; it has not expired by
--   the server's clock: a promise about lateness, not a lease.
-- ATOMICITY: a task is taken by one scheduler only; the tasks and the lines are of one moment.
-- COMPLEXITY: O(limit * log pending + most + waiting schedulers)
--- @include kind/changes
--- @include task/transitions
--- @include task/not_taken
local limit, bad, waiters, undone = 0, bad_number('most', args.most, 1, 10000) or bad_since(args.since), nil, nil
if not bad then
  bad, waiters, undone = bad_counts(meta, 'waiters', 'undone')
end
for _, row in rows() do
  bad = bad or bad_number('limit', row.limit, 0, 1000) or bad_kind(pending_prefix, row.kind)
  if bad then return bad end
  limit = limit + row.limit
end
if bad or limit > 1000 then return bad or redis.error_reply('PSARGS take gives 1,000 tasks at most') end
local now, given, owners, gone, g, w, salt = now_ms(), {}, {}, {}, 0, 0, args.salt
if undone and #undone < 16 and string.find(undone, '^%d+$') then
  salt = salt .. 'u' .. undone
end
local next_due, due_ids, due, sizes, following = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or '', {}, {}, {}, {}
if next_due ~= '' and is_past(next_due, now) then
  due_ids, due, bad, next_due = in_full().find_due(now, args.most, gone)
end
for number, row in rows() do
  local kind, ids, behind = row.kind, first_of(row.kind, row.limit)
  local size = #ids
  ids[size + 1] = behind
  local lines, owned, held
  if size > 0 then
    lines = redis.call('HMGET', tasks, unpack(ids))
    owned, held = redis.call('HMGET', taken, unpack(ids)), redis.call('HMGET', running, unpack(ids))
    sizes[kind], following[kind] = size, behind and string.match(lines[size + 1] or '', '^%+?%d+@%d+ (%d+) ')
    touch(kind)
  end
  for i = 1, size do
    local id, takes, life, ready, options, its = ids[i], string.match(lines[i] or '', '^%+?(%d+)@(%d+) %d+ (%d+) %d+ (%S+) (.*)$')
    local elsewhere = owned[i] or held[i] or string.byte(lines[i] or '') == 43 and in_full().is_dead(id)
    local sound = its == kind and #takes < 10 and #life < 16 and #ready < 16
    if sound and not elsewhere and (options == '-' or not is_past(string.match(options .. ',', 'expires=(%d+),'), now)) then
      local attempt = (takes == '0' and '1' or string.format('%d', takes + 1)) .. '@' .. life .. salt
      local off = options ~= '-' and string.match(options, 'last=([^,]+)')
      owners[w + 1], owners[w + 2], w = id, attempt, w + 2
      given[g + 1], given[g + 2], given[g + 3], given[g + 4], g = number, id, attempt, off and ready .. ' ' .. off or ready, g + 4
    else
      gone[#gone + 1], gone[#gone + 2] = number, id
    end
  end
end
local turned
if #gone > 0 and not bad then turned, bad = in_full().to_be_turned(gone, args.retention_s) end
if bad then return bad end
local written = #due_ids > 0 and in_full().enter_due(due_ids, due) or {}
read_lines(kinds)
announce(changed)
if #TOUCHED == 0 then redis.call('ZADD', changed, 'XX', 0, '') end -- changes nothing; a full server refuses it
write_all('ZREM', later, due_ids)
write_all('HSET', tasks, written)
for kind, size in pairs(sizes) do take_out(kind, size, following[kind]) end
write_all('HSET', taken, owners)
if #gone > 0 then in_full().turn_away(gone, turned, given, now, args.retention_s) end
write_kinds(meta, kinds, changed)
local version, anew, more, changes = changes_since(kinds, changed, args.since, args.most)
if args.waits == 'wait' then wait_in(meta, waiters or '', args.scheduler) end
local leaves = waiters and (args.waits == 'wake' or args.waits == '' and string.find(waiters, args.scheduler, 1, true))
if leaves then in_full().go_on(args.channel, meta, waiters, args.scheduler, args.waits) end
next_due = next_due or redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
return {version, now, next_due, anew, more, changes, given}
