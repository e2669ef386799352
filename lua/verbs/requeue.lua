-- requeue: return a task whose attempt lost its lease to pending, if it still is that attempt at that place.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events
-- READS: meta kinds changed later
-- ARGV: count channel retention_s max_starts (id attempt text why how delay_ms)*
--   text: the lease; max_starts: for tasks that have none of their own; delay_ms: '' or for how long the task must not be taken
--   how: '' if the lease is lost; 'unstarted' returns only what is placed and has not started; 'recalled' does not count the
--   start: the run was ended on purpose, or must not begin yet; 'unbegun' neither: the run did not begin, so the task has been
--   ready since before
-- RETURNS: a word per task: pending, dead (it has used up its starts), cancelled (as was asked for), none
-- ERRORS: PSARGS
-- INVARIANT: the task goes back before its slot is freed, which fences it: a pending task cannot start or finish. A dead task
--   stays while `dead` lists it: the newest 10,000. `history` has the last 10 attempts that were lost. While meta, kinds,
--   changed, later or pending: is damaged, the task goes back to no index, and the leader lets it wait (repair_task).
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/history
--- @include task/transitions
local bad, max_starts = bad_number('max_starts', args.max_starts, 1, 1e6), tonumber(args.max_starts)
local ids, replies = {}, {}
for i, row in rows() do
  bad = bad or row.delay_ms ~= '' and bad_number('delay_ms', row.delay_ms, 0, 9e14) or nil
  ids[i] = row.id
end
bad = bad or bad_retention(args.retention_s)
if bad then return bad end
local found, now = load_tasks(ids), now_ms()
look_at_index()
for _, task in pairs(found) do look_at_home(task) end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015

-- is_held: return whether a task has this attempt, at this place if it has one; at once, as a row before may have ended it.
local function is_held(task, row)
  if not task or task.attempt ~= row.attempt or row.how == 'unstarted' and task.state ~= 'placed' then return false end
  return task.state == 'taken' or task.place == row.text
end

local lost, died = 0, 0
for i, row in rows() do
  local why, how, task = row.why, row.how, found[row.id]
  if not is_held(task, row) then
    replies[i] = 'none'
  elseif not task.line then
    end_unseen(task, 'failed', now, DAMAGED, args.retention_s)
    replies[i] = 'none'
  else
    local line, state = task.line, task.state
    local counts = state == 'running' and how ~= 'recalled' and how ~= 'unbegun'
    local starts = (tonumber(option(line, 'starts')) or 0) + (counts and 1 or 0)
    if row.delay_ms == '' then
      lost = lost + 1
      add_setback(task, row.attempt, row.text, why, now)
    end
    local counted = starts > 0 and string.format('%d', starts) or nil -- the line of an ended task does not count its last run
    if task.extra.cancel then
      end_unseen(task, 'cancelled', now, why, args.retention_s)
      replies[i] = 'cancelled'
    elseif counts and starts >= (tonumber(option(line, 'max')) or max_starts) then
      set_option(line, 'starts', counted)
      bury(task, now, why, args.retention_s)
      died = died + 1
      to_outbox(task.id, 'dead', why)
      note_task(task, 'dead', why, row.attempt, row.text)
      replies[i] = 'dead'
    else
      if why ~= '' then put_extra(task, 'why', why) end
      set_option(line, 'starts', counted)
      if row.delay_ms == '' and (task.started or how == 'unstarted') then note_last(line, task.place) end
      if how == 'unbegun' or row.delay_ms ~= '' then
        task.started = nil
      end
      to_wait(task, after_ms(now, row.delay_ms), how == 'unbegun')
      if row.delay_ms == '' and is_loss(state, how) then note_task(task, 'requeued', why, row.attempt, row.text) end
      replies[i] = 'pending'
    end
  end
end
for name, more in pairs({lost = lost, died = died}) do -- only people read these: a damaged one begins anew
  if more > 0 and type(redis.pcall('HINCRBY', meta, name, more)) == 'table' then redis.pcall('HSET', meta, name, more) end
end
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then wake(args.channel, meta) end
return replies
