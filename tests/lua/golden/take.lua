local in_full
local KEYS, ARGV = KEYS, ARGV
local count = math.max(0, math.ceil((#ARGV - 7) / 2))
-- Checks before a script does anything: as many keys and arguments as its header names, and each key of its type. Redis does
-- not roll back, so a damaged key is found before the first write. The loader writes TYPES and NUMBERS, one entry for each name
-- of the header's KEYS (the last one also for all keys that follow), and the call of refuse_call.

local COUNTED = {} -- field -> number, of the fields that scripts count in, as the check of the keys found them

-- bad_type: return the error reply for a key of another type, or nil.

-- bad_key: return the error reply for a key of another type or with a number field that has no number, or nil.

-- refuse_call: return the error reply for a call that has not as many keys and arguments as the header says, or nil. On a
-- cluster one more key comes last, the gate, which the script does not use.
local function refuse_call(verb, keys, argv)
  if #ARGV == argv and (#KEYS == keys or #KEYS == keys + 1 and string.sub(KEYS[#KEYS], -6) == '}:gate') then return nil end
  return redis.error_reply(string.format('PSARGS %s takes %d keys and %d arguments, not %d and %d',
    verb, keys, argv, #KEYS, #ARGV))
end

-- too_long: return the error reply for the first argument behind `row` that is longer than its limit: {name, limit, ...}. The
-- loader writes the check itself, for every argument of every script (store/lengths.py).

-- too_many: return the error reply for a call of too many rows.

-- bad_keys: return the error reply for a damaged key among those at these numbers and from number `from` on, or nil. The
-- script reads the other keys before it writes, which finds the same damage.

-- bad_number: return the error reply for an argument that is not a whole number from low to high, or nil.
local function bad_number(what, text, low, high)
  local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
  if number and number >= low and number <= high then return nil end
  return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d', what, low, high))
end

-- bad_retention: return the error reply for a retention that is not a number of seconds up to a year, or nil.

local NOW -- a script is of one moment

-- now_ms: return the server's time in milliseconds, as a decimal string.
local function now_ms()
  if NOW then return NOW end
  local t = redis.call('TIME') -- seconds and microseconds
  NOW = t[1] .. string.sub('00000' .. t[2], -6, -4)
  return NOW
end

-- after_ms: return the time `delay_ms` later, nil for a delay of ''.

-- is_past: return whether an expiry (ms, or nil for none) has come.
local function is_past(due, now)
  local at = due and tonumber(due)
  return at and at <= tonumber(now)
end

-- Helpers of scripts over many tasks: read every record before the first write, so that damage is found in time; write each
-- index with one command.

-- write_all: call a command on a key with all these values, 1,000 at a time: `unpack` can return only some thousands. Return
-- the sum of the replies.
local function write_all(command, any, values)
  local sum, size = 0, #values
  if size <= 1000 then return size > 0 and redis.call(command, any, unpack(values)) or 0 end
  for at = 1, size, 1000 do
    sum = sum + redis.call(command, any, unpack(values, at, math.min(at + 999, size)))
  end
  return sum
end

-- read_list: return the texts of these fields of a hash, in their order; false for those that it has not.
local function read_list(any, fields)
  if #fields <= 1000 then return #fields > 0 and redis.call('HMGET', any, unpack(fields)) or {} end
  local found = {}
  for from = 1, #fields, 1000 do
    for i, text in ipairs(redis.call('HMGET', any, unpack(fields, from, math.min(from + 999, #fields)))) do
      found[from + i - 1] = text
    end
  end
  return found
end

-- read_fields: return {field -> text} of those of the fields that the hash has.
local function read_fields(any, fields)
  local found = {}
  for from = 0, #fields - 1, 1000 do
    local texts = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
    for i, text in ipairs(texts) do
      if text then found[fields[from + i]] = text end -- a nil would take a place in the table
    end
  end
  return found
end

-- flat: return {key, value, ...} of a table, for a write.

-- read_counts: return nil and these fields of a hash as text, or the error reply if one of the first three is no number. Scripts
-- whose header READS the hash call it; for the others the check of the keys looks at the numbers (lib/call/arguments.lua).
local function read_counts(any, one, two, three, ...)
  local found = redis.call('HMGET', any, one, two, three, ...)
  for i = 1, 3 do
    local value = found[i]
    if value and not (#value < 16 and string.find(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, ({one, two, three})[i]))
    end
  end
  return nil, unpack(found)
end

-- bad_counts: put the numbers of the queue's meta into COUNTED. Return the error reply for a field that is no number; or nil and
-- up to two further fields that the caller names.
local function bad_counts(meta, ...)
  local bad, version, submitted, floor, more, another = read_counts(meta, 'version', 'submitted', 'floor', ...)
  if bad then return bad end
  COUNTED = {version = tonumber(version or 0), submitted = tonumber(submitted or 0), floor = tonumber(floor or 0)}
  return nil, more, another
end

-- Where tasks wait: by kind, in `pending:KIND`, by their order. `kinds` has a line for each kind of which tasks wait, `changed`
-- the version at which each line changed last, that of an ended kind as well. A script looks at the kinds that it may change
-- before its first write (bad_kind), says what enters and leaves, and writes the lines last. parsync_redis/model/kind.py


local QUEUES, TOUCHED = {}, {} -- kind -> its queue as this call found and changes it; the kinds that change, in their turn
local APART = false -- the index is damaged: what would wait stays in no index, until the leader lets it (repair_task)

-- bad_kind: look at the queue of a kind; return the error reply for a key of another type, or nil.
local function bad_kind(pending_prefix, kind)
  if QUEUES[kind] then return nil end
  local pending = pending_prefix .. kind
  local size = redis.pcall('ZCARD', pending)
  if type(size) ~= 'number' then return in_full().bad_type(pending, 'zset') end
  QUEUES[kind] = {pending = pending, before = size, count = size, entering = false, low = 1e15, high = 0, left = 1e15}
end

local function touch(kind)
  local queue = QUEUES[kind]
  if not queue.touched then TOUCHED[#TOUCHED + 1], queue.touched = kind, true end
  return queue
end

-- enter: let a task wait; `order` as text, and as a number if the caller has it.

-- fill: write the tasks that enter.
local function fill(queue)
  local pending, entering = queue.pending, queue.entering
  if entering then queue.count, queue.entering = queue.count + write_all('ZADD', pending, entering), false end
end

-- leave: take a task out, if it waits there.

-- order_at: return the order of the task at a rank of a queue, 0 for one that no script has written.

-- first_of: return the ids of the first tasks of a kind, once in a call, and of the one behind them. It writes nothing.
local function first_of(kind, limit)
  local queue = QUEUES[kind]
  if queue.count == 0 or tonumber(limit) == 0 or queue.asked then return {} end
  queue.asked = true
  local ids = redis.call('ZRANGE', queue.pending, 0, limit)
  return ids, #ids > tonumber(limit) and table.remove(ids) or nil
end

-- take_out: take the first tasks of a kind out of its queue; `following` is the order of the one behind them.
local function take_out(kind, size, following)
  local queue = QUEUES[kind]
  local pending = queue.pending
  queue.count = queue.count - redis.call('ZREMRANGEBYRANK', pending, 0, size - 1)
  queue.first = queue.count == 0 and math.huge or tonumber(following) or in_full().order_at(pending, 0)
end

-- The lines of `kinds`, 'COUNT FIRST LAST[ WHY]': how many tasks of a kind wait, the order of the first, an upper bound of the
-- order of the last, and why they wait, as a scheduler wrote it.


-- parse_kind: return the count, the order of the first and of the last, and the rest: '' or ' WHY'; nil for any other text.
local function parse_kind(line)
  local size, first, last, why = string.match(line or '', '^([1-9]%d*) (%d+) (%d+)(.*)$')
  if not size or #size > 15 or #first > 15 or #last > 15 or why ~= '' and string.byte(why) ~= 32 then return nil end
  return tonumber(size), tonumber(first), tonumber(last), why
end

-- find_first: return the smallest order in a queue, from low to high. It counts and does not read, because logins that may
-- cancel a task may not list the ids of others.

-- kind_line: return the line of a queue as it is now, from the line before. The first is looked for if it may have left.
local function kind_line(queue, before)
  local size, first, last, why = parse_kind(before)
  if queue.before == 0 then
    first, last = queue.low, queue.high
  elseif not size then
    first, last = queue.first or in_full().find_first(queue.pending, 0, 999999999999999), queue.last or 999999999999999
  elseif not queue.first and queue.left <= first then
    first = in_full().find_first(queue.pending, math.min(first, queue.low), math.max(last, queue.high))
  end
  first = math.min(queue.first or first, queue.low)
  return string.format('%d %d %d%s', queue.count, first, math.max(first, last, queue.high), why or '')
end

-- Write the index of kinds: the lines that change, and their versions.




local LINES_READ = false

-- read_lines: read the line of each kind that was looked at, before the first write.
local function read_lines(kinds)
  local names, n = {}, 0
  for kind, queue in pairs(QUEUES) do
    if queue.before > 0 and not queue.read then
      n = n + 1
      names[n], queue.read = kind, true
    end
  end
  if n == 0 and #TOUCHED > 0 and not LINES_READ then redis.call('HEXISTS', kinds, '') end
  LINES_READ = LINES_READ or #TOUCHED > 0
  if n == 0 then return end
  local lines = read_list(kinds, names)
  for i = 1, n do QUEUES[names[i]].known = lines[i] or nil end
end

local ANNOUNCED, LAST = 0 -- how many of TOUCHED have their version; the last version

-- announce: give each kind that changes its version; return the last. A version is the time, in hundredths of a ms,
-- or one more than the last: a server that lost writes must not count up to a version that a scheduler's copy has. A clock far in
-- the future gives no version of 16 digits. As a first write it does no harm, and a full server refuses it (docs/decisions/0015).
local function announce(changed)
  local last = #TOUCHED
  if last == 0 then return COUNTED.version end
  if ANNOUNCED < last then
    local versions, base = {}, math.max(COUNTED.version, math.min(now_ms() * 100 - 1, 9e14))
    LAST = base + last
    for i = ANNOUNCED + 1, last do
      versions[#versions + 1], versions[#versions + 2] = string.format('%d', base + i), TOUCHED[i]
    end
    ANNOUNCED = last
    write_all('ZADD', changed, versions)
  end
  return LAST
end

-- write_kinds: write the queues and lines that changed, each with a version of its own. Return whether tasks wait of a kind of
-- which none waited before: then a scheduler is to be woken.
local function write_kinds(meta, kinds, changed)
  if APART then return false end
  local began, lines, ended = false, {}, {}
  read_lines(kinds)
  local version = announce(changed)
  if version > COUNTED.version then -- HINCRBY, which clients may: not HSET, by which they could write any text
    redis.call('HINCRBY', meta, 'version', string.format('%d', version - COUNTED.version))
  end
  for _, kind in ipairs(TOUCHED) do
    local queue = QUEUES[kind]
    fill(queue)
    if queue.count == 0 then
      ended[#ended + 1] = kind
    else
      queue.line = kind_line(queue, queue.known)
      lines[#lines + 1], lines[#lines + 2] = kind, queue.line
      began = began or queue.before == 0
    end
  end
  write_all('HSET', kinds, lines)
  write_all('HDEL', kinds, ended)
  COUNTED.now = version
  return began
end

-- The copy of `kinds` that a scheduler has stands at a version: 'V', or 'V/B' if it is not whole yet, because it was begun
-- anew when the queue was at version B.


-- bad_since: return the error reply for a text that is no version of a copy, or nil.
local function bad_since(since)
  if #since < 32 and (string.find(since, '^%d+$') or string.find(since, '^%d+/%d+$')) then return nil end
  return redis.error_reply('PSARGS since is V or V/B')
end

-- changes_since: return the changes that a copy lacks, `most` at most: the version at which the copy then stands, 1 if it must be
-- dropped first, 1 if there are more changes, and {kind, line or '', ...}.
local function changes_since(kinds, changed, since, most)
  local now, at, begun = COUNTED.now, string.match(since, '^(%d+)%f[%D]/?(%d*)$')
  at, begun = tonumber(at), tonumber(begun) or tonumber(at)
  local anew, changes, last = at == 0 or at > now or begun < COUNTED.floor, {}, now
  if anew then at, begun = 0, now end
  if at == COUNTED.version and #TOUCHED <= tonumber(most) then -- only this call has changed something since
    for _, kind in ipairs(TOUCHED) do
      changes[#changes + 1], changes[#changes + 2] = kind, QUEUES[kind].line or ''
    end
  elseif at < now then
    local after = string.format('(%d', at)
    local names = redis.call('ZRANGEBYSCORE', changed, after, '+inf', 'LIMIT', 0, most)
    local lines = read_fields(kinds, names)
    for _, kind in ipairs(names) do changes[#changes + 1], changes[#changes + 2] = kind, lines[kind] or '' end
    if #names >= tonumber(most) then last = tonumber(redis.call('ZSCORE', changed, names[#names])) end
  end
  local version = begun > last and string.format('%d/%d', last, begun) or string.format('%d', last)
  return version, anew and 1 or 0, last < now and 1 or 0, changes
end

-- Events: what happened out of the ordinary, for people, in a capped stream of each tag. No script
-- reads the stream, and no script stops because of it: a damaged stream begins anew. A script that
-- calls these functions has `events` among its keys, and has written before.


-- event_words: return the fields and values of an event for XADD.

-- is_damaged_stream: return whether a reply of XADD says that the stream is no stream, or that it
-- has an id of more than an hour in the future, behind which events of now cannot be added.

-- note_event: add an event; fields: task, name, node, attempt, scheduler, why and by, as far as the
-- event has them.

-- note_task: add an event of a task; place: the place of this attempt, or nil.

-- The line of a task in the hash `tasks` says what the task is, until it ends:
--   [+]TAKES@LIFE ORDER READY_MS SUBMITTED_MS OPTIONS KIND: 0@17 9000000000017 1732161994123 1732161994123 - work slots=1
-- TAKES: how often it was taken before it last began to wait; '+': extra:ID has rare fields; OPTIONS: '-' or NAME=VALUE with
-- commas between. parsync_redis/model/record.py

-- parse_line: return the fields of a line as a table; nil for any other text. No line is longer than 20,000 bytes.

-- line_text: return the line of these fields.

-- option: return the value of an option, nil if the line does not have it.

-- set_option: change an option of a line; nil takes it out.

-- note_last: write into a line on which node its task ran last, unless the task may as well go back there.

-- run_parts: return the place and the start (ms) in the text of a run; nil for a place alone, and for a text too long for a run.

-- attempt_of: return the attempt in the text of a place or a run; nil for any other text.

-- split_kind: return the name, the needs and the strategy ('' if it has none) of a kind.

-- The successor of a task: the work that follows under the same id once its running attempt has ended. extra:ID has it as
-- `next`, 'PRIORITY DUE_MS OPTIONS KIND' with '-' for a missing word, and `next_message`.


-- parse_next: return the fields of a successor as a table; nil for any other text.

-- is_others: return whether others than the run published the successor.

-- become_next: turn a task into its successor, without the setbacks of the earlier run. Return when the successor is due, nil for
-- now; the task is `renewed` then. If there is no successor, or a damaged one, the task runs again as it was.

-- The outbox: tasks that ended where no worker saw it.


-- to_outbox: queue the result of a task that ended where no worker saw it, for an agent to tell the result backend.

-- write_outbox: write the lines of this call. The newest 10,000 stay.

-- Read the record of a task. The hash that has the task tells its state. A script that calls these functions has the keys tasks,
-- taken, running, dead, ended, ended_1 and ended_2, and the prefix extra:.



-- ended_texts: return {id -> text} of tasks that have ended. The text has a line for each of 'STATE MS', the task's line, its
-- last entry of `running`, and why it ended.

-- look_at: complete the record of a task that has not ended: state, line (nil if it is damaged), attempt, the place and the
-- start (ms) of its run, and its rare fields in `extra`.

-- load_tasks: return {id -> record} of the tasks that there are; an ended task has its state and its text only.

-- bad_records: return the error reply for a key of another type that only some calls need, or nil.

-- put_extra: write rare fields of a task. The first ones begin anew: those of an earlier life may not have expired yet.

-- put_line: write the line of a task.

-- Schedulers that wait to be woken when tasks begin to wait of a kind of which none waited: `waiters` of the queue's meta. Only
-- takes write it, because clients, who wake, may not write texts there.

-- sound_waiters: return these `waiters`; none for a text that is longer than any that scripts write.
local function sound_waiters(waiters) return #waiters < 8000 and waiters or '' end

-- wait_in: add the scheduler to the end of these `waiters`; again, if wakes would pass over 16 others first, which may be dead.
-- Dead names gather at the front; they are cut off at 4,000 bytes.
local function wait_in(meta, waiters, scheduler)
  waiters = sound_waiters(waiters)
  local all = ' ' .. waiters .. ' '
  local from, to = string.find(all, ' ' .. scheduler .. ' ', 1, true)
  if from then
    local _, behind = string.gsub(string.sub(all, to + 1), ' ', '')
    if behind < 16 then return end
    waiters = string.sub(string.sub(all, 1, from) .. string.sub(all, to + 1), 2, -2)
  end
  all = waiters == '' and scheduler or waiters .. ' ' .. scheduler
  if #all > 4000 then all = string.match(string.sub(all, -4000), ' (.*)$') or scheduler end
  redis.call('HSET', meta, 'waiters', all)
end


-- wait_no_more: take the scheduler out of these `waiters`.

-- ring_newest: wake the newest waiter but `me`; if nobody listens on its channel, the one before it, and so on, 16 at most.
-- Return those that were not tried.

-- wake: wake the newest waiter. It stays among the waiters until it takes.

-- go_on: note that a scheduler does not wait after its take. waits: see take. Schedulers that are woken here, or do not hear it,
-- leave the list.

-- Let tasks wait again and end them. Scripts that call these have, beside the keys of lib/task/record.lua, messages and pending:.








-- bad_home: look at the queue in which a task would wait; return the error reply for a key of another type, or nil.
-- look_at_index: find out whether the index of waiting tasks is damaged. Calls of runs must work all the same.

-- look_at_home: look at the queue in which a task would wait; of another type it is damage of the index.

-- unhold: take a task from the index of its state.

-- undo_take: let a taken task wait as if it had not been taken: its line, its place in the order and its rare fields stay.

-- count_undone: count takes that were undone. A number that is damaged begins again beyond any that was counted: so does one
-- that was negative, or that has more digits than `take` writes into attempts.

-- come_due: let a task whose run was put off before it began be ready since it was first; return whether it is one.

-- to_wait: let a task wait, at its place in the order of its kind; if `due` (ms) is given, not before. Only a task that has
-- started is ready anew: the delay of any other goes on. put_off: so does that of a task that has to wait until it is due because
-- its run could not begin. A successor that its attempt submitted is lost with the run: otherwise a later run's success would
-- start it. A successor of others stays. The line says `redelivered` if a run of the same message had begun.

-- write_end: move the record of a task to `ended`.

-- to_final: end a task that is in no kind's queue. `told`: no worker saw its end, so its message is kept for the process that
-- tells the result backend.

-- end_unseen: end a task where no worker sees it.

-- Judge conditions on labels, for scripts: zone:a|b, gpu_model:!t4, zone:*, vram_gb:>=24. A node's label may have several values.
-- parsync_redis/model/condition.py does the same for the view; a property test compares the two.


-- sign_of: return the comparison of a condition, nil if it compares no numbers.

-- is_condition: return whether a text is a condition.

-- values_of: return the values of a label in an offer with a space before and behind.


-- holds: return whether a condition is true of a node whose label has these values.

-- labels_fit: a rule (lib/kind/fits.lua): the node meets all conditions. Labels `parsync.NAME` have rules of their own.

-- Amounts with decimals, in tables {name -> whole number}: 'gpu.' has the thousandths of 'gpu',
-- from 0 to 999, if the amount has decimals. So no number is a fraction, and -0.5 is -1 and 500.
-- parsync_redis/model/amount.py does the same.


-- is_part: return whether a text is an amount with decimals and without a zero at its end.

-- set_part: set an amount with decimals, '-0.5', in a ledger. Ignores a text that is no such
-- amount.

-- part_fits: return whether the asked thousandths `key` are left. One whole more is always enough.

-- add_part: add thousandths to an amount of a ledger, if the node declares the amount.

-- part_text: return the text of an amount with thousandths.

-- size_text: return the text of an amount of a ledger.

-- undeclared: return how much a node has of an amount that it does not declare: 1 of a word of
-- `apart` (model/apart.py), 0 of any other.

-- is_enough: return whether a ledger has every asked amount.

-- Devices: a resource that a node has as a set of indexed devices with amounts of their own, as in
-- the offer 'gpu.mem@0=4096 gpu@0=1'. Needs name no index, 'gpu=0.5 gpu.mem=1024'; a place does.
-- parsync_redis/model/devices.py does the same; a property test compares the two.


-- device_name: split the name of an amount of devices into the kind, the attribute ('' or '.mem')
-- and the index ('' or '0'). Return nil for any other text.

-- is_of_devices: return whether needs, or an offer, may have an amount of devices of this name.

-- devices_of: return {kind -> list of indexes} of an offer's amounts, or of a ledger.

-- share_of: compute what a task asks of the devices of a kind.
-- Returns the share of each device in thousandths, the number of devices, and the sorted names of
-- the attributes. 0.5 gpu is 500, 1; 2 gpu is 1000, 2. The share is 0 if the task asks for no such
-- device, and nil for an amount that whole devices cannot give, such as 1.5.

-- asks_device: return whether a task asks for a device of a kind that an offer has.

-- The amounts that a task holds on a node: those of its needs, with single devices in the place of kinds of devices.


-- choose: add to `held` the devices of a kind that a task gets: the fullest that still have enough. Return whether there are.

-- hold: return the amounts that a task would hold of those left on a node; nil if these are too little.

-- Judge taints: parsync.taint:spot of an offer, parsync.taint:old|spot of needs that tolerate both. model/taints.py


-- taints_fit: a rule (lib/kind/fits.lua): the task tolerates each taint of the node.

-- Judge what fits, for scripts. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100', where NAME=N is an
-- amount and NAME:VALUE a label. In needs VALUE may be a condition (lib/kind/conditions.lua). placement/fits.py does the
-- same for the view; a property test compares the two.






-- is_rare: return whether a word is an amount with decimals or of devices or, in needs, a label with a condition.

-- look: return whether a text has only words of amounts and labels; `of_needs`: conditions on labels as well.

-- well_formed: return whether a text has only words NAME=N and NAME:VALUE, as offers and ledgers do.

-- are_needs: return whether a text has only words NAME=N and NAME:CONDITION.

-- amounts: return {name -> number} of the NAME=N words of a text; lib/node/thousandths.lua says what those with decimals are.

-- The rules, in the order of parsync_redis/placement/rules, here and in what is included: each returns whether a node that offers
-- `offer` passes. `slots` is an amount here.

-- protection_fits: a rule: the task asks for some of the node's devices, if it has any and does not share them.

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.

-- Check the fields of a task's line that a run depends on.



-- flaw: return which part of a line is corrupt, or nil; `line` is nil if the text is no line. A task with a flaw cannot run: it
-- ends as failed.

-- Tasks that a take meets and does not give to its scheduler: tasks that come due, expired tasks, and damaged tasks.



-- is_dead: return whether a task is in the list of dead ones.

-- find_due: return the ids of `most` delayed tasks that have come due, the line of each (false without one), and an error reply
-- or nil. Those with a damaged line are added to `gone`.

-- to_be_turned: return the records of the tasks of {row, id, ...}, by id; or nil and the error reply.

-- enter_due: let tasks wait that have come due; return {id, line, ...} of those whose line is another now.

-- turn_one: end a task that has expired or is damaged, or put it where it belongs; return why, if it is damaged.

-- turn_away: turn away all tasks of {row, id, ...}, and add those that are damaged to what the reply tells.

local FULL
function in_full()
  if FULL then return FULL end
  local BASE = string.sub(KEYS[1] or '', 1, -5)
  local KEY = {meta = KEYS[1], kinds = KEYS[2], changed = KEYS[3], later = KEYS[4], tasks = KEYS[5], taken = KEYS[6], running = KEYS[7], pending = KEYS[8], messages = BASE .. 'messages', dead = BASE .. 'dead', ended = BASE .. 'ended', ended_1 = BASE .. 'ended_1', ended_2 = BASE .. 'ended_2', outbox = BASE .. 'outbox', events = BASE .. 'events', extra = BASE .. 'extra:'}
  local STRATEGY = {latency = true, quality = true, adaptive = true}
  local TOLD = {} -- the lines that go to the outbox
  local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
  local RARE = {'why', 'history', 'cancel', 'next', 'ended_ms', 'run'} -- fields of extra:ID; also next_message and message
  local DAMAGED = 'its record is damaged'
  local PARTS = {} -- 'gpu.' -> true for each such key that this call has seen
  local SOUND, NEEDED, FITTING = {}, {}, {} -- answers in this call: most tasks of a call need the same, most nodes offer the same
  local function bad_type(any, wanted)
    local is = redis.call('TYPE', any).ok
    if is == wanted or is == 'none' then return nil end
    return redis.error_reply(string.format('PSRECORD %s is a %s, not a %s', any, is, wanted))
  end
  local function too_long(verb, row, limits)
    for at = 1, #limits, 2 do
      local text = ARGV[row + (at + 1) / 2]
      if #text > limits[at + 1] then
        return redis.error_reply(string.format('PSARGS %s: %s has %d bytes, %d at most', verb, limits[at], #text, limits[at + 1]))
      end
    end
  end
  local function too_many(verb, most)
    return redis.error_reply(string.format('PSARGS %s takes %d rows at most', verb, most))
  end
  local function bad_number(what, text, low, high)
    local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
    if number and number >= low and number <= high then return nil end
    return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d', what, low, high))
  end
  local function bad_retention(text) return bad_number('retention_s', text, 1, 31536000) end
  local function now_ms()
    if NOW then return NOW end
    local t = redis.call('TIME') -- seconds and microseconds
    NOW = t[1] .. string.sub('00000' .. t[2], -6, -4)
    return NOW
  end
  local function is_past(due, now)
    local at = due and tonumber(due)
    return at and at <= tonumber(now)
  end
  local function write_all(command, any, values)
    local sum, size = 0, #values
    if size <= 1000 then return size > 0 and redis.call(command, any, unpack(values)) or 0 end
    for at = 1, size, 1000 do
      sum = sum + redis.call(command, any, unpack(values, at, math.min(at + 999, size)))
    end
    return sum
  end
  local function read_fields(any, fields)
    local found = {}
    for from = 0, #fields - 1, 1000 do
      local texts = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
      for i, text in ipairs(texts) do
        if text then found[fields[from + i]] = text end -- a nil would take a place in the table
      end
    end
    return found
  end
  local function bad_kind(pending_prefix, kind)
    if QUEUES[kind] then return nil end
    local pending = pending_prefix .. kind
    local size = redis.pcall('ZCARD', pending)
    if type(size) ~= 'number' then return in_full().bad_type(pending, 'zset') end
    QUEUES[kind] = {pending = pending, before = size, count = size, entering = false, low = 1e15, high = 0, left = 1e15}
  end
  local function touch(kind)
    local queue = QUEUES[kind]
    if not queue.touched then TOUCHED[#TOUCHED + 1], queue.touched = kind, true end
    return queue
  end
  local function enter(kind, id, order, at)
    if APART then return end
    local queue = touch(kind)
    at = at or tonumber(order)
    local entering = queue.entering
    if entering then
      entering[#entering + 1], entering[#entering + 2] = order, id
    else
      queue.entering = {order, id}
    end
    if at < queue.low then queue.low = at end
    if at > queue.high then queue.high = at end
  end
  local function order_at(pending, rank)
    local order = tonumber(redis.call('ZRANGE', pending, rank, rank, 'WITHSCORES')[2])
    return order and order >= 0 and order < 1e15 and math.floor(order) or 0
  end
  local function find_first(pending, low, high)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if redis.call('ZCOUNT', pending, '-inf', string.format('%d', middle)) > 0 then high = middle else low = middle + 1 end
    end
    return low
  end
  local function event_words(event, fields)
    local words = {'event', event}
    for _, name in ipairs({'task', 'name', 'node', 'attempt', 'scheduler', 'why', 'by'}) do
      local value = fields[name] or ''
      if value ~= '' then
        words[#words + 1] = name
        words[#words + 1] = string.sub(value, 1, name == 'why' and 300 or 4096)
      end
    end
    return words
  end
  local function is_damaged_stream(id)
    if type(id) ~= 'table' then
      return string.match(id, '^%d+') - now_ms() > 3600000
    end
    local err = tostring(id.err)
    return string.find(err, 'WRONGTYPE', 1, true) or string.find(err, 'last possible ID', 1, true)
  end
  local function note_event(event, fields)
    local words = event_words(event, fields)
    local id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
    if is_damaged_stream(id) then
      redis.pcall('DEL', KEY.events)
      id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
    end
    if type(id) == 'table' then
      local message = 'parsync: event ' .. event .. ' is lost: ' .. tostring(id.err)
      redis.log(redis.LOG_WARNING, message)
    end
  end
  local function note_task(task, event, why, attempt, place)
    local node = string.match(place or '', '^%S+ %S+ p%d+ ([^ /]+)/')
    local name = task.line and string.match(task.line.kind, '^%S+')
    note_event(event, {task = task.id, name = name, node = node, attempt = attempt, why = why})
  end
  local function parse_line(text)
    if text and #text > 20000 then return nil end
    local mark, takes, life, order, ready, submitted, options, kind =
      string.match(text or '', '^(%+?)(%d+)@(%d+) (%d+) (%d+) (%d+) (%S+) (%S+ slots=%d[^\n]*)$')
    if not mark or #takes > 9 or #life > 15 or #order > 15 or #ready > 15 or #submitted > 15 then return nil end
    return {mark = mark, takes = tonumber(takes), life = life, order = order, ready = ready, submitted = submitted,
      options = options, kind = kind}
  end
  local function line_text(line)
    return string.format('%s%d@%s %s %s %s %s %s', line.mark, line.takes, line.life, line.order, line.ready, line.submitted,
      line.options, line.kind)
  end
  local function option(line, name)
    return string.match(',' .. line.options, ',' .. name .. '=([^,]*)')
  end
  local function set_option(line, name, value)
    local words = {}
    for word in string.gmatch(line.options, '[^,]+') do
      if word ~= '-' and string.sub(word, 1, #name + 1) ~= name .. '=' then words[#words + 1] = word end
    end
    if value then words[#words + 1] = name .. '=' .. value end
    line.options = #words > 0 and table.concat(words, ',') or '-'
  end
  local function run_parts(run)
    if #run <= 140000 then return string.match(run, '^(.*) started=(%d+)$') end -- no place is longer than 131,072 bytes
  end
  local function attempt_of(run) return #run <= 140000 and string.match(run, '^%S+ (%S+)') or nil end
  local function split_kind(kind)
    local name, needs = string.match(kind, '^(%S+) (.*)$')
    local rest, last = string.match(needs or '', '^(.*) (%l+)$')
    if rest then return name, rest, last end
    return name, needs, ''
  end
  local function to_outbox(id, state, why) TOLD[#TOLD + 1] = id .. ' ' .. state .. ' ' .. why end
  local function write_outbox(outbox)
    if #TOLD == 0 then return end
    write_all('LPUSH', outbox, TOLD)
    redis.call('LTRIM', outbox, 0, 9999)
  end
  local function ended_texts(ids)
    local found = read_fields(KEY.ended_2, ids)
    for id, text in pairs(read_fields(KEY.ended_1, ids)) do found[id] = text end
    for id, text in pairs(read_fields(KEY.ended, ids)) do found[id] = text end
    return found
  end
  local function look_at(task)
    local line = parse_line(task.raw)
    task.line, task.extra = line, {}
    if line and line.mark == '+' then
      local key = KEY.extra .. task.id
      local rare = redis.pcall('HMGET', key, unpack(RARE))
      if rare.err then error(bad_type(key, 'hash').err, 0) end -- names the key, which is no argument
      for i, value in ipairs(rare) do task.extra[RARE[i]] = value or nil end
    end
    if task.run then
      local place, started = run_parts(task.run)
      task.place, task.started, task.attempt = place or task.run, started, attempt_of(task.run)
      task.state = started and 'running' or 'placed'
    elseif task.attempt then
      task.state = 'taken'
    else
      task.state = (task.extra.ended_ms or redis.call('ZSCORE', KEY.dead, task.id)) and 'dead' or 'pending'
    end
    return task
  end
  local function load_tasks(ids)
    local lines, owners, runs = read_fields(KEY.tasks, ids), read_fields(KEY.taken, ids), read_fields(KEY.running, ids)
    local over, found = ended_texts(ids), {}
    for _, id in ipairs(ids) do
      local text = over[id]
      if not found[id] and (lines[id] or not text and (owners[id] or runs[id])) then
        found[id] = look_at({id = id, raw = lines[id], attempt = owners[id], run = runs[id]})
      elseif not found[id] and text then
        local state = string.match(text, '^%l+')
        found[id] = {id = id, state = FINAL[state] and state or 'failed', text = text}
      end
    end
    return found
  end
  local function bad_records()
    local bad
    for _, name in ipairs({'running', 'taken', 'messages', 'ended', 'ended_1', 'ended_2'}) do
      bad = bad or bad_type(KEY[name], 'hash')
    end
    return bad or bad_type(KEY.dead, 'zset')
  end
  local function put_extra(task, ...)
    if task.line.mark ~= '+' then redis.call('DEL', KEY.extra .. task.id) end
    redis.call('HSET', KEY.extra .. task.id, ...)
    task.line.mark = '+'
  end
  local function sound_waiters(waiters) return #waiters < 8000 and waiters or '' end
  local function put_waiters(meta, waiters)
    if waiters == '' then redis.call('HDEL', meta, 'waiters') else redis.call('HSET', meta, 'waiters', waiters) end
  end
  local function wait_no_more(meta, waiters, scheduler)
    local all = ' ' .. sound_waiters(waiters) .. ' '
    local from, to = string.find(all, ' ' .. scheduler .. ' ', 1, true)
    if from then put_waiters(meta, string.sub(string.sub(all, 1, from) .. string.sub(all, to + 1), 2, -2)) end
  end
  local function ring_newest(channel, waiters, me)
    local rest, heard, tries = sound_waiters(waiters), 0, 0
    while heard == 0 and rest ~= '' and tries < 16 do
      local others, last = string.match(rest, '^(.*) (%S+)$')
      if (last or rest) ~= me then heard = redis.call('SPUBLISH', channel .. ':' .. (last or rest), 'wake') end
      rest, tries = others or '', tries + 1
    end
    return rest
  end
  local function go_on(channel, meta, waiters, me, waits)
    if waits == 'wake' then
      put_waiters(meta, ring_newest(channel, waiters, me))
    else
      wait_no_more(meta, waiters, me)
    end
  end
  local function unhold(task)
    if task.state == 'taken' then redis.call('HDEL', KEY.taken, task.id) end
    if task.run then redis.call('HDEL', KEY.running, task.id) end
  end
  local function come_due(line)
    local since = option(line, 'since')
    if since and #since < 16 and string.find(since, '^%d+$') then
      line.ready = since
    end
    if since then
      set_option(line, 'since', nil)
    end
    return since ~= nil
  end
  local function write_end(task, state, now, why)
    local line = task.line and line_text(task.line) or task.raw or ''
    redis.call('HSET', KEY.ended, task.id, table.concat({state .. ' ' .. now, line, task.run or '', why}, '\n'))
    redis.call('HDEL', KEY.tasks, task.id)
    redis.call('HDEL', KEY.messages, task.id)
  end
  local function to_final(task, state, now, why, retention_s, told)
    local message = told and task.line and redis.call('HGET', KEY.messages, task.id)
    if message then put_extra(task, 'message', message) end
    write_end(task, state, now, why)
    unhold(task)
    if task.line and task.line.mark == '+' then
      redis.call('HDEL', KEY.extra .. task.id, 'cancel', 'next', 'next_message')
      redis.call('EXPIRE', KEY.extra .. task.id, retention_s)
    elseif not task.line then
      redis.call('DEL', KEY.extra .. task.id)
    end
    task.state, task.attempt, task.run = state, nil, nil
  end
  local function end_unseen(task, state, now, why, retention_s)
    local attempt = task.attempt
    to_final(task, state, now, why, retention_s, true)
    to_outbox(task.id, state, why)
    note_task(task, why == 'expired' and why or state, why ~= 'expired' and why, attempt, task.place)
  end
  local function is_number(text)
    return #text <= 15 and (string.find(text, '^%-?%d+$') or string.find(text, '^%-?%d+%.%d+$')) ~= nil
  end
  local function sign_of(condition)
    local first, second = string.byte(condition, 1, 2)
    if first ~= 60 and first ~= 62 then return nil end
    return string.sub(condition, 1, second == 61 and 2 or 1)
  end
  local function is_condition(text)
    local sign = sign_of(text)
    if sign then return is_number(string.sub(text, #sign + 1)) end
    local values = string.match(text, '^!?(.*)$')
    if values == '*' then return true end
    return string.find(values, '^[%w_./%%|-]+$') ~= nil and not string.find('|' .. values .. '|', '||', 1, true)
  end
  local function is_part(amount)
    local whole = string.match(amount, '^(%d+)%.%d?%d?[1-9]$')
    return whole ~= nil and #whole < 13
  end
  local function device_name(name)
    local kind = string.match(name, '^%l[%l%d_]*') or ''
    local attribute = string.match(name, '^%.%l[%l%d_]*', #kind + 1) or ''
    local suffix = string.sub(name, #kind + #attribute + 1)
    local index = suffix == '' and '' or string.match(suffix, '^@(%d%d?%d?)$')
    if kind == '' or #kind > 32 or #attribute > 33 or not index then
      return nil
    end
    if #index > 1 and string.byte(index) == 48 then
      return nil
    end
    return kind, attribute, index
  end
  local function is_of_devices(name, of_needs)
    local _, attribute, index = device_name(name)
    if of_needs then
      return index == '' and attribute ~= ''
    end
    return index ~= nil and index ~= ''
  end
  local function is_rare(word, of_needs)
    local name, amount = string.match(word, '^(%l[%l%d_.@]*)=%-?([%d.]+)$')
    if name then
      local sound = string.find(name, '^[%l%d_]*$') or is_of_devices(name, of_needs)
      return sound and (is_part(amount) or #amount < 17 and string.find(amount, '^%d+$') ~= nil)
    end
    local condition = of_needs and string.match(word, '^%a[%w_.-]*:(.+)$')
    return condition and is_condition(condition) or false
  end
  local function look(text, of_needs)
    if #text > 65536 or string.find(text, '[^ -~]') then return false end
    for word in string.gmatch(text, '%S+') do
      local amount = string.match(word, '^%l[%l%d_]*=%-?(%d+)$')
      if not (amount and #amount < 17) and not string.find(word, '^%a[%w_.-]*:[%w_./%%-]+$') then
        if not in_full().is_rare(word, of_needs) then return false end
      end
    end
    return true
  end
  local function are_needs(text)
    if NEEDED[text] == nil then NEEDED[text] = look(text, true) end
    return NEEDED[text]
  end
  local function flaw(line)
    if not line then return 'line' end
    local name, needs, strategy = split_kind(line.kind)
    if not string.find(needs or '', '^slots=%d') or not are_needs(needs) then return 'needs' end
    if not string.find(name or '', '^[!-~]+$') or #name > 255 then return 'name' end
    if strategy ~= '' and not STRATEGY[strategy] then return 'strategy' end
  end
  local function is_dead(id) return redis.call('ZSCORE', KEY.dead, id) end
  local function find_due(now, most, gone)
    local ids, bad = redis.call('ZRANGEBYSCORE', KEY.later, '-inf', now, 'LIMIT', 0, most), nil
    local texts, lines = read_fields(KEY.tasks, ids), {}
    for i, id in ipairs(ids) do
      local line = parse_line(texts[id])
      if texts[id] and not line then gone[#gone + 1], gone[#gone + 2] = 0, id end
      bad = bad or line and bad_kind(KEY.pending, line.kind) or nil
      lines[i] = line or false
    end
    return ids, lines, bad
  end
  local function to_be_turned(gone, retention_s)
    local bad, ids = bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list'), {}
    if bad then return nil, bad end
    for i = 2, #gone, 2 do ids[#ids + 1] = gone[i] end
    local found = load_tasks(ids)
    for _, task in pairs(found) do bad = bad or task.line and bad_kind(KEY.pending, task.line.kind) or nil end
    return found, bad
  end
  local function enter_due(ids, lines)
    local written = {}
    for i, id in ipairs(ids) do
      local line = lines[i]
      if line then
        enter(line.kind, id, line.order)
        if come_due(line) then
          written[#written + 1], written[#written + 2] = id, line_text(line)
        end
      end
    end
    return written
  end
  local function turn_one(task, now, retention_s)
    if not task or task.state ~= 'pending' then return nil end -- it is in no queue any more
    local why = flaw(task.line)
    if why then
      why = DAMAGED .. ': ' .. why
      end_unseen(task, 'failed', now, why, retention_s)
      return why
    end
    if is_past(option(task.line, 'expires'), now) then
      end_unseen(task, 'cancelled', now, 'expired', retention_s)
    else
      enter(task.line.kind, task.id, task.line.order)
    end
  end
  local function turn_away(gone, turned, given, now, retention_s)
    for i = 1, #gone, 2 do
      local why = turn_one(turned[gone[i + 1]], now, retention_s)
      for _, word in ipairs(why and {gone[i], gone[i + 1], '', why} or {}) do given[#given + 1] = word end
    end
    write_outbox(KEY.outbox)
  end
  FULL = {bad_type = bad_type, enter_due = enter_due, find_due = find_due, find_first = find_first, go_on = go_on, is_dead = is_dead, is_rare = is_rare, order_at = order_at, to_be_turned = to_be_turned, too_long = too_long, too_many = too_many, turn_away = turn_away}
  return FULL
end
local redis_call, string_byte, string_find, string_format, string_match = redis.call, string.byte, string.find, string.format, string.match
local meta, kinds, changed, later, tasks, taken, running, pending_prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local refused = refuse_call('take', 8, 7 + 2 * count)
if refused then return refused end
if #ARGV[1] > 255 or #ARGV[2] > 32 or #ARGV[3] > 32 or #ARGV[4] > 160 or #ARGV[5] > 32 or #ARGV[6] > 255 or #ARGV[7] > 64 then return in_full().too_long('take', 0, {'scheduler', 255, 'since', 32, 'most', 32, 'salt', 160, 'retention_s', 32, 'channel', 255, 'waits', 64}) end
if count > 1000 then return in_full().too_many('take', 1000) end
for row = 7, #ARGV - 1, 2 do
  if #ARGV[row + 1] > 2097152 or #ARGV[row + 2] > 32 then return in_full().too_long('take', row, {'kind', 2097152, 'limit', 32}) end
end

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



local limit, bad, waiters, undone = 0, bad_number('most', ARGV[3], 1, 10000) or bad_since(ARGV[2]), nil, nil
if not bad then
  bad, waiters, undone = bad_counts(meta, 'waiters', 'undone')
end
for _ = 1, count do local row = 2 * _ + 5
  bad = bad or bad_number('limit', ARGV[row + 2], 0, 1000) or bad_kind(pending_prefix, ARGV[row + 1])
  if bad then return bad end
  limit = limit + ARGV[row + 2]
end
if bad or limit > 1000 then return bad or redis.error_reply('PSARGS take gives 1,000 tasks at most') end
local now, given, owners, gone, g, w, salt = now_ms(), {}, {}, {}, 0, 0, ARGV[4]
if undone and #undone < 16 and string_find(undone, '^%d+$') then
  salt = salt .. 'u' .. undone
end
local next_due, due_ids, due, sizes, following = redis_call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or '', {}, {}, {}, {}
if next_due ~= '' and is_past(next_due, now) then
  due_ids, due, bad, next_due = in_full().find_due(now, ARGV[3], gone)
end
for number = 1, count do local row = 2 * number + 5
  local kind, ids, behind = ARGV[row + 1], first_of(ARGV[row + 1], ARGV[row + 2])
  local size = #ids
  ids[size + 1] = behind
  local lines, owned, held
  if size > 0 then
    lines = redis_call('HMGET', tasks, unpack(ids))
    owned, held = redis_call('HMGET', taken, unpack(ids)), redis_call('HMGET', running, unpack(ids))
    sizes[kind], following[kind] = size, behind and string_match(lines[size + 1] or '', '^%+?%d+@%d+ (%d+) ')
    touch(kind)
  end
  for i = 1, size do
    local id, takes, life, ready, options, its = ids[i], string_match(lines[i] or '', '^%+?(%d+)@(%d+) %d+ (%d+) %d+ (%S+) (.*)$')
    local elsewhere = owned[i] or held[i] or string_byte(lines[i] or '') == 43 and in_full().is_dead(id)
    local sound = its == kind and #takes < 10 and #life < 16 and #ready < 16
    if sound and not elsewhere and (options == '-' or not is_past(string_match(options .. ',', 'expires=(%d+),'), now)) then
      local attempt = (takes == '0' and '1' or string_format('%d', takes + 1)) .. '@' .. life .. salt
      local off = options ~= '-' and string_match(options, 'last=([^,]+)')
      owners[w + 1], owners[w + 2], w = id, attempt, w + 2
      given[g + 1], given[g + 2], given[g + 3], given[g + 4], g = number, id, attempt, off and ready .. ' ' .. off or ready, g + 4
    else
      gone[#gone + 1], gone[#gone + 2] = number, id
    end
  end
end
local turned
if #gone > 0 and not bad then turned, bad = in_full().to_be_turned(gone, ARGV[5]) end
if bad then return bad end
local written = #due_ids > 0 and in_full().enter_due(due_ids, due) or {}
read_lines(kinds)
announce(changed)
if #TOUCHED == 0 then redis_call('ZADD', changed, 'XX', 0, '') end -- changes nothing; a full server refuses it
write_all('ZREM', later, due_ids)
write_all('HSET', tasks, written)
for kind, size in pairs(sizes) do take_out(kind, size, following[kind]) end
write_all('HSET', taken, owners)
if #gone > 0 then in_full().turn_away(gone, turned, given, now, ARGV[5]) end
write_kinds(meta, kinds, changed)
local version, anew, more, changes = changes_since(kinds, changed, ARGV[2], ARGV[3])
if ARGV[7] == 'wait' then wait_in(meta, waiters or '', ARGV[1]) end
local leaves = waiters and (ARGV[7] == 'wake' or ARGV[7] == '' and string_find(waiters, ARGV[1], 1, true))
if leaves then in_full().go_on(ARGV[6], meta, waiters, ARGV[1], ARGV[7]) end
next_due = next_due or redis_call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
return {version, now, next_due, anew, more, changes, given}
