-- take: give a scheduler the first tasks of the kinds for which it has seats, each with its next
-- attempt; end tasks that have expired; move delayed tasks that have come due to their kinds; and
-- tell the scheduler which lines of `kinds` have changed.
-- KEYS: meta kinds changed later tasks taken running pending:
-- ALSO: messages dead ended ended_1 ended_2 outbox events accounts policy extra: holders:
-- READS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 outbox
-- ARGV: scheduler since most salt retention_s channel waits (kind limit)*
--   since: the version at which the scheduler's copy of `kinds` stands, '0' for none
--   most: how many changed lines the scheduler wants to be told, and how many due tasks are looked
--     at
--   limit: how many tasks of the kind the scheduler wants; 1,000 in all. 0: none, but accounts of
--     the kind that have no room for a task are marked as full
--   salt: '.SCHEDULER.RANDOM', the end of the scheduler's attempts. The salt tells the attempts
--     from those of other schedulers, and from those of takes that the server lost,
--     docs/decisions/0016. If takes were undone, 'u' and their number follow: a take that is undone
--     is not counted
--   waits: 'wait' to be woken when the next kind begins to wait; 'wake' to wake another scheduler
--     that waits
-- RETURNS: {version, now_ms, due_ms, anew, more, changes, tasks}
--   version: at which the copy stands now; due_ms: when the next delayed task is due, or ''
--   anew: 1 if the scheduler drops its copy first; more: 1 if there are more changes
--   changes: (kind, line or '')*, by their versions, and ('=ACCOUNT', 'HELD of CEILING')* of
--     accounts that changed; behind them those of all accounts to which tasks of the rows count
--   tasks: (row, id, attempt, ready_ms)*. row: 0 if the task was delayed; ready_ms: since when the
--     task could be taken, and behind a space the node that it avoids. If the record of the task is
--     damaged, attempt is '' and ready_ms says why
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and in no kind's queue, and it counts to its accounts, none
--   of which holds more than its ceiling by this call; its attempt was never given out before; the
--   task has not expired by the server's clock: a promise about lateness, not a lease.
-- ATOMICITY: a task is taken by one scheduler only; the tasks and the lines are of one moment.
-- COMPLEXITY: O(limit * log pending + most + waiting schedulers)
--- @include kind/changes
--- @include task/transitions
--- @include task/taking
local COUNTED_KINDS = {} -- the kinds of the rows whose tasks count to accounts

-- check_call: check the arguments and read meta. Return the error reply; or nil, the schedulers
-- that wait, and how many takes were undone.
local function check_call()
  local refusal = bad_number('most', args.most, 1, 10000)
  if not refusal then
    refusal = bad_since(args.since)
  end
  if refusal then
    return refusal
  end
  local total = 0
  local waiters, undone
  refusal, waiters, undone = bad_counts(meta, 'waiters', 'undone')
  for _, row in rows() do
    refusal = refusal or bad_number('limit', row.limit, 0, 1000)
    local limit = tonumber(row.limit) or 0
    local queue = QUEUES[row.kind]
    if not refusal and not (queue and queue.limit >= limit) then
      refusal = read_first(pending_prefix, row.kind, limit)
    end
    total = total + limit
  end
  if not refusal and total > 1000 then
    refusal = redis.error_reply('PSARGS take gives 1,000 tasks at most')
  end
  return refusal, waiters, undone
end

-- read_asked: read the accounts to which tasks of the rows count, and their ceilings.
local function read_asked()
  for _, row in rows() do
    if QUEUES[row.kind].counts then
      COUNTED_KINDS[#COUNTED_KINDS + 1] = row.kind
    end
  end
  if #COUNTED_KINDS > 0 then
    counting().read_accounts_of(COUNTED_KINDS)
  end
end

-- choose_tasks: choose the first tasks of the kinds of all rows, and find the delayed tasks that
-- have come due. Writes nothing. Returns an error reply or nil.
-- undone: how many takes were undone; has_due: whether a delayed task may be due.
local function choose_tasks(undone, has_due)
  local refusal = has_due and in_full().find_due(args.most, NOT_TAKEN)
  local salt = args.salt
  if undone and #undone < 16 and string.find(undone, '^%d+$') then
    salt = salt .. 'u' .. undone
  end
  read_asked()
  read_candidates(tasks, taken, running)
  for number, row in rows() do
    take_first(number, row.kind, tonumber(row.limit), salt)
  end
  if #NOT_TAKEN > 0 and not refusal then
    refusal = in_full().load_not_taken(NOT_TAKEN, args.retention_s)
  end
  return refusal
end

-- write_tasks: write the tasks that choose_tasks found: the due tasks, the taken tasks, and those
-- that cannot be taken.
local function write_tasks(has_due)
  local due_lines = has_due and in_full().enter_due()
  read_lines(kinds)
  if #COUNTED_KINDS > 0 then
    counting().list_accounts()
  end
  announce(changed)
  if #COUNTED_KINDS > 0 then
    counting().write_holders()
  end
  if #TOUCHED == 0 then
    redis.call('ZADD', changed, 'XX', 0, '') -- changes nothing, but a full server refuses the call
  end
  if has_due then
    in_full().write_due(due_lines)
  end
  for kind, size in pairs(LEAVING) do
    take_out(kind, size, BEHIND[kind])
  end
  write_all('HSET', taken, ATTEMPTS)
  if #NOT_TAKEN > 0 then
    in_full().end_not_taken(NOT_TAKEN, GIVEN, args.retention_s)
  end
end

-- next_due: return when the next delayed task is due, or ''.
local function next_due()
  return redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
end

local refusal, waiters, undone = check_call()
if refusal then
  return refusal
end
local due_ms = next_due()
local has_due = due_ms ~= '' and is_past(due_ms, now_ms())
refusal = choose_tasks(undone, has_due)
if refusal then
  return refusal
end
write_tasks(has_due)
write_changes(meta, kinds, changed)
local version, anew, more, changes = changes_since(kinds, changed, args.since, args.most)
note_waiting(args.channel, meta, waiters, args.scheduler, args.waits)
due_ms = has_due and next_due() or due_ms
if #COUNTED_KINDS > 0 then
  due_ms = counting().tell_accounts(changes, COUNTED_KINDS, due_ms)
end
return {version, now_ms(), due_ms, anew, more, changes, GIVEN}
