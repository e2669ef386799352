-- submit: create each task once, pending; or say why not.
-- KEYS: meta kinds changed feasible tasks messages ended ended_1 ended_2 pending:
-- ALSO: later shapes names expires dead taken running accounts policy extra:
-- READS: meta kinds tasks taken running ended ended_1 ended_2 later shapes feasible names expires
-- READS: dead messages changed
-- ARGV: count channel shards apps what (id kind options message)*
--   shards: as the caller knows them
--   apps: `apps` of meta when the caller read what the apps declare, '' if the caller did not
--   what: lines 'PRIORITY NAME NEEDS[ STRATEGY]', one for all equal tasks of the call
--   kind: the number of such a line; options: see lib/task/submit_rows.lua
-- RETURNS: (row, word)* of the rows that created no task: exists (the id has a task)
--   infeasible: no node could hold the task; unknown: no node knows the name
--   nolimit: the policy does not know a limit of the task
--   next: the row is the task's successor; stale: the attempt that submits a successor has ended
--   of every row: changed (`apps` of meta is another), elsewhere (so is the number of shards)
-- ERRORS: PSARGS
-- INVARIANT: a publication is one task however often it is submitted; a pending task is in the
--   queue of its kind or in `later`, no other task is. A successor with another name or other needs
--   than its task is judged as a new task is.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(log pending) per task; O(nodes) for its kind's first task after the nodes changed
--- @include task/resubmission
--- @include kind/feasible
--- @include kind/index
--- @include cluster/wake
--- @include task/submit_rows
--- @include task/submission
local CREATED = {} -- id -> true, of the tasks that this call creates
local LINES = {} -- {id, line, ...} of the tasks that this call creates
local MESSAGES = {} -- {id, message, ...} of the tasks that this call creates

local kinds_by_number -- the number of a line of `what`, as text -> the fields of its kind
local ids -- the ids of the rows
local options_of -- row -> its options, of the rows with options
local known -- of each row, the line or the text of the task that has the row's id; false for none
local existing -- id -> record, of the known tasks whose rows have options

-- read_known: read which ids have tasks already. Return an error reply or nil.
local function read_known()
  known = redis.call('HMGET', tasks, unpack(ids))
  local ended_now = redis.call('HMGET', ended, unpack(ids))
  local ended_before = redis.call('HMGET', ended_1, unpack(ids))
  local ended_first = redis.call('HMGET', ended_2, unpack(ids))
  local resubmitted = {}
  for i = 1, count do
    known[i] = known[i] or ended_now[i] or ended_before[i] or ended_first[i]
    if known[i] and options_of[i] then
      resubmitted[#resubmitted + 1] = ids[i]
    end
  end
  redis.call('HEXISTS', messages, '') -- raises an error for another type
  local refusal
  if next(options_of) then
    existing, refusal = in_full().load_existing(options_of, resubmitted)
  end
  return refusal
end

-- read_call: read and check the call, and what its ids are known as. Return the reply of a call
-- that creates nothing, or nil.
local function read_call()
  local reply, refusal
  reply, kinds_by_number = check_call(meta, pending_prefix)
  if reply then
    return reply
  end
  refusal, ids, options_of = read_rows(kinds_by_number)
  if refusal then
    return refusal
  end
  return read_known()
end

-- judge_row: return the word why a row creates no task, or nil.
local function judge_row(i, id, kind)
  local options = options_of[i]
  local word
  if CREATED[id] then
    word = options and options.after and 'stale' or 'exists'
  elseif known[i] and options then
    word = in_full().judge_resubmission(existing[id], options)
  elseif known[i] then
    word = 'exists'
  end
  local is_asked = not word or word == 'next' and in_full().changes_needs(existing[id], kind)
  if is_asked and not (options and options.wait == '1') then
    local misfit_word = misfit_of(feasible, kind)
    local may_wait = misfit_word == 'nolimit' and options and options.wait == 'limits'
    word = not may_wait and misfit_word or word
  end
  return word
end

-- create_task: note a new task with its line and its message, and let it wait.
local function create_task(id, kind, message, options, is_known)
  local due
  local kept = '-'
  LAST_VERSION = LAST_VERSION + 1
  local position = kind.base + LAST_VERSION
  if options then
    due, kept, position = in_full().timing(id, options, is_known, position)
  end
  local size = #LINES
  local life = COUNTED.submitted + size / 2 + 1
  local order = string.format('%d', position)
  local now = NOW or now_ms()
  if not due then
    enter(kind.kind, id, order, position)
  end
  CREATED[id] = true
  LINES[size + 1] = id
  LINES[size + 2] =
    string.format('0@%d %s %s %s %s %s', life, order, due or now, now, kept, kind.kind)
  MESSAGES[size + 1] = id
  MESSAGES[size + 2] = message
end

-- submit_rows: create the tasks of the rows, and store successors. Return the reply.
local function submit_rows()
  local reply = {}
  for i, row in rows() do
    local id = ids[i]
    local kind = kinds_by_number[row.kind]
    local word = judge_row(i, id, kind)
    if word == 'next' then
      in_full().store_successor(existing[id], kind, options_of[i], row.message)
    end
    if word then
      reply[#reply + 1] = i
      reply[#reply + 1] = word
    else
      create_task(id, kind, row.message, options_of[i], known[i])
    end
  end
  return reply
end

-- write_created: write the new tasks, and wake a scheduler if tasks of a kind begin to wait.
local function write_created()
  local began = write_kinds(meta, kinds, changed)
  redis.call('HINCRBY', meta, 'submitted', #LINES / 2)
  redis.call('HSET', messages, unpack(MESSAGES))
  redis.call('HSET', tasks, unpack(LINES))
  if began then
    wake(args.channel, meta)
  end
end

local reply = read_call()
if reply then
  return reply
end
reply = submit_rows()
if #LINES > 0 then
  write_created()
end
if next(options_of) then
  in_full().write_options()
end
return reply
