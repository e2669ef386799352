-- submit: create each task once, pending; or say why not.
-- KEYS: meta kinds changed later shapes feasible names expires dead pending: task*
-- ARGV: count channel (id name needs priority strategy max_starts delay_ms expiry_ms wait after publication message)*
--   priority, strategy, max_starts: options that the record keeps, '' for none (lib/options.lua); delay_ms: '' or for how long
--   the task must not be taken; expiry_ms: '' or after how long it expires; wait: '1' lets it wait for capacity that no node
--   has yet; after: '' or the running attempt that submits what the same id does next (Celery's retry and replace);
--   publication: '' for an id that is one task for ever, else it tells one publish of the id from the next: a new publish
--   begins a new life of a task that has ended, and is the successor of one that runs, or has run and waits again.
-- RETURNS: a word per task: submitted, exists, infeasible, unknown (no node knows that name), next, stale
-- ERRORS: PSARGS
-- INVARIANT: a publication is one task however often it is submitted; a pending task is in the queue of its kind or in
--   `later`, no other task is.
-- ATOMICITY: each task by itself; its record and its place in the order of its kind are written together.
-- COMPLEXITY: O(log pending) per task; O(nodes) for the first task of its needs and name after the nodes changed.
--- @include batch
--- @include clock
--- @include feasible
--- @include queue
--- @include submission
local asked = {}
for i, row in rows() do
  asked[i] = fields_of(row)
  local task = asked[i]
  local bad = bad_submission(task)
  task.kind = kind_text(task.name, task.needs, task.strategy)
  bad = bad or bad_kind(pending_prefix, task.kind)
  if bad then return bad end
end

local function read(key)
  return redis.pcall('HMGET', key, 'state', 'attempt', 'publication', 'next_publication', 'started_ms')
end
local tasks, damage = read_tasks(read)
if damage then return damage end

local now, replies = now_ms(), {}
local last = COUNTED.submitted
for i, _, key in rows() do
  local task = asked[i]
  task.due_ms, task.expires_ms = after_ms(now, task.delay_ms), after_ms(now, task.expiry_ms)
  local state, attempt, publication, next_publication, started = unpack(tasks[i] or read(key))
  local anew = task.publication ~= '' and task.publication ~= publication and task.publication ~= next_publication
  local mine = state == 'running' and task.after == attempt
  if mine or (state and task.after == '' and anew and started and not FINAL[state]) then
    if not mine or (next_publication or '') == '' then write_next(key, task) end -- others' successors go before a retry
    replies[i] = 'next'
  elseif state and task.after ~= '' then
    replies[i] = 'stale'
  elseif state and not (anew and FINAL[state] and not is_revoked(state, task.publication)) then
    replies[i] = 'exists'
  else
    replies[i] = task.wait ~= '1' and misfit(feasible, names, shapes, task.name, task.needs) or 'submitted'
    if replies[i] == 'submitted' then
      if state then
        redis.call('ZADD', changed, 'XX', 0, '') -- changes nothing; a full server refuses it, docs/decisions/0015
        redis.call('DEL', key)
        redis.call('ZREM', dead, task.id)
      end
      last = last + 1
      task.order = string.format('%.0f', (9 - task.priority) * 1e12 + last)
      write_task(key, task, last, now)
      if task.due_ms then
        redis.call('ZADD', later, task.due_ms, task.id)
      else
        enter(task.kind, task.id, task.order)
      end
    end
  end
  if task.expires_ms and (replies[i] == 'submitted' or replies[i] == 'next') then
    redis.call('ZADD', expires, task.expires_ms, task.id)
  end
end
local counts = last > COUNTED.submitted and {'submitted', string.format('%.0f', last)} or {}
if write_kinds(meta, kinds, changed, counts) then wake(args.channel, meta) end
return replies
