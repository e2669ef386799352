local counting, in_full
local KEYS, ARGV = KEYS, ARGV
local count = math.max(0, math.ceil((#ARGV - 7) / 2))
-- Checks of a call, which come before anything else in a script: the numbers of keys and arguments,
-- their lengths, and the type of each key. Redis does not roll back, so a script finds a damaged
-- key before its first write. The loader writes TYPES and NUMBERS with one entry for each name of
-- the header's KEYS (the last entry is also that of all keys that follow), and the call of
-- refuse_call.

-- COUNTED: {field -> number} of the fields of `meta` that are numbers, as bad_key read them
local COUNTED = {}

-- bad_type: return the error reply for a key of another type than `wanted`, or nil.

-- bad_key: return the error reply for a damaged key, or nil. number: which of the header's KEYS the
-- key is. A key is damaged if it has another type than TYPES says, or if a field that NUMBERS names
-- is no number. Puts the numbers into COUNTED.

-- refuse_call: return the error reply for a call that has not as many keys and arguments as the
-- header says, or nil. On a Redis Cluster a call has one more key at its end, which no script uses.

-- too_long: return the error reply for the first argument behind `row` that is longer than its
-- limit. limits: {name, limit, ...}. The loader writes the check itself, for every argument of
-- every script (parsync_redis/store/scripts/lengths.py).

-- too_many: return the error reply for a call of more than `limit` rows.

-- bad_keys: return the error reply for a damaged key among those with these numbers and those from
-- number `from` on, or nil. The script reads the other keys before it writes, which finds the same
-- damage.

-- bad_number: return the error reply for an argument that is not a whole number from low to high,
-- or nil. what: the name of the argument in the error.
local function bad_number(what, text, low, high)
  local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
  if number and number >= low and number <= high then
    return nil
  end
  return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d',
    what, low, high))
end

-- bad_retention: return the error reply for a retention that is not a number of seconds up to a
-- year, or nil.

-- Reads and writes of many values. A script reads every record before its first write, so that it
-- finds damage in time, and writes each index with one command. `unpack` can return only some
-- thousands of values, so a command has 1,000 at most.

-- write_all: call a command, such as ZADD, on a key with all these values. Return the sum of the
-- replies.
local function write_all(command, any, values)
  local size = #values
  if size == 0 then
    return 0
  end
  if size <= 1000 then
    return redis.call(command, any, unpack(values))
  end
  local sum = 0
  for from = 1, size, 1000 do
    sum = sum + redis.call(command, any, unpack(values, from, math.min(from + 999, size)))
  end
  return sum
end

-- read_list: return the texts of these fields of a hash, in their order; false for a missing field.

-- read_fields: return {field -> text} of these fields of a hash, without the missing fields.

-- flat: return {key, value, ...} of a table, for a write.

-- The time of a script. All calls of now_ms in one run of a script return the same time.
local NOW

-- now_ms: return the server's time in milliseconds, as a decimal string.
local function now_ms()
  if NOW then
    return NOW
  end
  local time = redis.call('TIME') -- seconds and microseconds
  NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
  return NOW
end

-- after_ms: return the time `delay_ms` after `now`; nil for a delay of ''.

-- is_past: return whether a moment (ms, or nil for none) has come.
local function is_past(moment, now)
  local moment_ms = moment and tonumber(moment)
  return moment_ms and moment_ms <= tonumber(now)
end

-- The line of an account in `accounts`, and its fields; see lib/kind/accounts.lua.
-- parse_words: put a line of several amounts or with marks into the fields of an account. With a
-- word that cannot be read the line is damaged, and that of a limit with fewer units than holders.

-- parse_account: put the line of an account into its fields; false stands for no line.

-- number_text: return an amount as text, with three decimals at most.

-- account_text: return the line of an account without the mark `full`.

-- Shares: to which accounts the tasks of a kind count, and what each task holds of them. Most calls
-- are about few kinds, and most kinds of a call have the same needs: what this call has found is
-- kept. Nobody changes a share.

-- The fields of a share:
--   name: of the account
--   asked: what one task holds
--   is_open: whether the account has no ceiling, that of a key; else nil

-- split_last: return a text without its last word, and what the word has behind `mark`, ' under=';
-- or the text alone, if its last word does not begin so.

-- split_accounts: return the name, the needs and the strategy of a kind as one text, its tenant,
-- and its limits; nil for a kind without a tenant, or without limits.

-- split_kind: return the name, the needs, the strategy ('' without one) and the preferences (nil
-- without any) of a kind.

-- amounts_asked: return {name -> number} of the amounts in needs. The words of `apart` are no
-- amounts of a tenant, nor are words that mean something else in a line or a ceiling.

-- add_tenants: add the shares of a tenant and of those above, from the root down.

-- add_limits: add the shares of several limits, or of limits with units.

-- add_key: add the share of the key of the rule `warm`, if a kind has the rule.

-- shares_of: return which accounts a task of a kind counts to, tenants from the root down, and what
-- the task holds of each.

-- Numbers in the fields of a hash, read and checked with one command.

-- read_counts: read fields of a hash, of which the first three are numbers. Return nil and the
-- texts of the fields; or the error reply if one of the first three is no number. Scripts that have
-- the hash in the READS of their header call read_counts; in other scripts the check of the keys
-- (lib/call/arguments.lua) reads the numbers.
local function read_counts(any, first, second, third, ...)
  local texts = redis.call('HMGET', any, first, second, third, ...)
  for i = 1, 3 do
    local text = texts[i]
    if text and not (#text < 16 and string.find(text, '^%-?%d+$')) then
      local field = ({first, second, third})[i]
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, field))
    end
  end
  return nil, unpack(texts)
end

-- bad_counts: put the numbers of the queue's meta into COUNTED. Return the error reply for a field
-- that is no number; or nil and the texts of up to two further fields that the caller names.
local function bad_counts(meta, ...)
  local refusal, version, submitted, floor, fourth, fifth =
    read_counts(meta, 'version', 'submitted', 'floor', ...)
  if refusal then
    return refusal
  end
  COUNTED = {
    version = tonumber(version or 0),
    submitted = tonumber(submitted or 0),
    floor = tonumber(floor or 0),
  }
  return nil, fourth, fifth
end

-- The line of a task in the hash `tasks`, which says what the task is until it ends:
--   [+]TAKES@LIFE ORDER READY_MS SUBMITTED_MS OPTIONS KIND
--   0@17 8100217995234123 1732161994123 1732161994123 - work slots=1
-- TAKES: how often the task was taken before it last began to wait. '+': extra:ID has rare fields.
-- OPTIONS: '-' or NAME=VALUE with commas between. See parsync_redis/model/record.py.


-- parse_line: return the fields of a line as a table; nil for any other text. No line is longer
-- than 20,000 bytes.

-- line_text: return the text of a line with these fields.

-- option: return the value of an option of a line; nil if the line does not have the option.

-- set_option: change an option of a line; the value nil takes the option out.

-- note_last: write into a line on which node its task ran last, unless the task may go back there.

-- come_due: for a task whose run was put off before it began, write into the line since when the
-- task was ready at first. Return whether the task's run was put off.

-- next_attempt: return the attempt of a task that is taken now, 'TAKES@LIFE' with the salt of the
-- take, and ready_ms of the reply of take. Return nil if the task cannot be taken.
-- is_elsewhere: whether the task is in another index beside its queue.

-- run_parts: return the place and the start (ms) in the text of a run; nil for a place alone, and
-- for a text that is too long for a run: no place is longer than 131,072 bytes.

-- is_run_at: return whether the text of a run is that of a run that has started at this place.

-- attempt_of: return the attempt in the text of a place or a run; nil for any other text.

-- has_accounts: return whether a kind, or a line that ends in a kind, may name a tenant, limits or
-- the key of `warm`: shares_of says which. No line is longer than 20,000 bytes. The words for= and
-- under= are the last of a kind, and no tenant or limit has a '=' (61): a kind that ends in 's=1'
-- has neither, and if a space (32) is before its last word of seven bytes, it has no key. To search
-- for a space takes longer. A kind with a limit or a key has 'r=', the end of under= and prefer=.
local function has_accounts(kind)
  local space, _, _, _, _, before, sign = string.byte(kind, -8, -2)
  if sign == 61 and before ~= 114 then -- 'r', the end of for= and under=
    return space ~= 32 and #kind <= 20000 and string.find(kind, 'warm=', 1, true)
  end
  if #kind > 20000 or string.find(kind, 'for=', 1, true) then
    return #kind <= 20000
  end
  return string.find(kind, 'r=', 1, true)
    and (string.find(kind, 'under=', 1, true) or string.find(kind, 'warm=', 1, true))
end

-- The queues of waiting tasks: `pending:KIND` has the ids of the tasks of a kind, by their order
-- (priority, then age). `kinds` has a line for each kind of which tasks wait. `changed` has the
-- version at which each line changed last, also of a kind of which no task waits any more. Before
-- its first write a script calls bad_kind for each kind that it may change. Then it calls enter and
-- leave for tasks. At its end it calls write_kinds (lib/kind/index.lua), which writes the lines.
-- parsync_redis/model/kind.py parses the lines.



local QUEUES = {} -- kind -> its queue, a table with the fields below
local TOUCHED = {} -- the kinds, and '=ACCOUNT' (lib/kind/accounts.lua), that change, in that order
local APART = false -- true if the index of kinds is damaged: then tasks enter no queue
local HIGHEST_ORDER = 8999999999999999 -- see lib/task/order.lua

-- The fields of a queue. An order is a number; the task with the lowest order is taken first.
--   pending: the key
--   before, count: how many tasks waited before the call, and how many wait now
--   entering: {order, id, ...} of the tasks to write, or false
--   low, high: the lowest and the highest order that enters
--   left: the lowest order that has left
--   touched: whether the kind changes
--   first, last: the orders of the first and the last task, if the call knows them
--   ids, limit, counts: see read_first; ids is false once a take has chosen of them
--   from: the place of `ids` in the ids of all queues of the call
--   known, line: the line before the call (false for none, nil if it is not read), the line now

-- add_queue: add the queue of a kind, of which `size` tasks wait.

-- bad_kind: look at the queue of a kind; return the error reply for a key of another type, or nil.

-- read_first: do as bad_kind does, for a take that wants `limit` tasks of a kind, a number. Let the
-- queue have `limit`, the ids of its first tasks, one more than `limit` if so many wait, and
-- whether the tasks may count to accounts.

-- touch: note in TOUCHED that a kind changes; return the kind's queue.

-- enter: let a task wait in the queue of its kind; write_entering writes the task later.
-- order: the task's order as text; order_number: as a number, or nil.

-- write_entering: write the tasks for which `enter` was called into the key of their queue.

-- leave: remove a task from the queue of a kind. Does nothing for a task that does not wait there.

-- order_at: return the order of the task at a rank of a queue, 0 for an order that no script
-- writes.

-- take_out: remove the first `size` tasks of a kind from its queue.
-- following: the order of the next task, nil if the caller does not know the order.

-- Accounts: what tasks count to from their take until they end or go back. The account of a tenant
-- is '@research', that of a limit 'stripe'; see parsync_redis/model/account.py. The hash `accounts`
-- has a line for each account with holders: their number, what they hold, and marks.
--   n=3 slots=12 gpu=3                         a tenant
--   n=3 units=4 next=1732161994123.250 full    a limit
-- next: until when (ms) its rate is used up, see lib/kind/ceilings.lua
-- full: a take has refused tasks because of the account, or was asked for no task and has found no
--   room for one: when holders leave, a scheduler is woken.
--   A line without holders is there only if no task has room: set_policy tells schedulers of it
-- The zset `holders:ACCOUNT` has the ids of the tasks, by the time (ms) since which each counts.
-- A damaged line stays as it is, and its account has room for nothing, until `recount` writes the
-- line anew. A script calls leave_accounts or count_taken for its tasks; write_changes
-- (lib/kind/changing.lua) writes what it has changed.





local ACCOUNTS = {} -- name -> account, a table with the fields below

-- The fields of an account:
--   is_read, is_touched, is_told: whether this call has read the line, changes the account, and has
--     told of it
--   count, held: the number of holders, and {name of an amount -> number}; nil for a damaged line
--   next, full: the marks; nil or false without one
--   is_shut: whether a take found room for no task
--   entering: {{ms, id, ...}, ...} of the tasks that enter; nil for none
--   leaving: {what one task holds, {id, ...}, ...} of the tasks that leave; nil for none
--   returned: how many units were not used, because their takes are undone
--   text: the line without the mark `full`, once it is written
--   is_checked, is_doubtful: whether line and holders have been compared, and differ (room.lua)
--   ceiling_text, is_unread, allowed, interval, least_interval, burst: the ceiling (ceilings.lua)
--   is_divided, allotment, whole_text: its division among shards (ceilings.lua, allotments.lua)

-- account_of: return the account of a name, which this call may not have read.

-- read_accounts: read the lines of these accounts, as far as this call has not read them. In a key
-- of another type every line is damaged.

-- touch_account: let write_changes write an account; return the account.

-- leave_accounts: take tasks of a kind out of their accounts. ids: a list; undone: whether their
-- takes are undone, so that a rate gets their units back.

-- Ceilings and allotments: what an account may hold in this shard.
-- In a queue of several shards each ceiling in `policy` ends with ' shards=N', and the leader gives
-- each shard a part, its *allotment* (verb allot), in the field '=ACCOUNT' of the same hash:
--   units=2          burst=3 units=2          gpu=0.5 slots=20
-- The least of ceiling and allotment counts. What an allotment does not name is 0, so an account
-- without an allotment has room for nothing. The parts of a rate are those of its `burst`: a shard
-- with 3 of 10 may start 3/10 of the units. The field '#seal' changes with each allot.


-- allot_rate: give this shard `part` of the burst of a rate, and as much of the rate. Return the
-- words of the ceiling that are about the rate, by name.

-- apply_allotment: let a divided account have its allotment, or false for none, as the ceiling.

-- read_allotments: read the allotments of those of these accounts whose ceilings are divided.

-- account_line: return 'HELD of CEILING' of an account that this call has read. HELD may end with
-- ' full': then a scheduler knows that it is woken when the account has room. CEILING is '-' for
-- none, and '?' for one that cannot be read: then the account has room for nothing.

-- list_wanting: let the leader find accounts that have refused tasks and have no allotment.

-- bad_allotments: return the error reply if the key of the allotments has another type, or nil.

-- write_allotment: write the allotment of an account; '' for none.

-- allotted_accounts: return the names of all accounts with an allotment, sorted.

-- read_seal: return the seal of this shard, '' if it has none.

-- write_seal: write the seal that follows, a number and the salt; return it.

-- Ceilings: what the holders of an account may hold at most, and how often tasks may start. The
-- hash `policy` has them by account, or by a pattern with '*' in the place of the last part:
--   slots=200 gpu=4                     the tenant @research
--   units=5 rate=100/60000 burst=10     the limit customer:*
-- A limit without an entry has room for nothing; a tenant without one has no ceiling.
-- A rate is judged by lib/kind/room.lua.



-- words_of: return {name -> number} of the words of a ceiling, the period of its rate, and among
-- how many shards it is divided; nil for a text that is no ceiling: without its words it would let
-- all tasks in.

-- parse_ceiling: put a ceiling, or false for none, into the fields of an account.

-- pattern_of: return the entry that counts for an account without an entry of its own. An account
-- without such an entry gets its own name.

-- read_policy: return the texts of these fields of `policy`; nil for a key of another type.

-- list_fields: return the names whose ceilings this call has not read, the fields of `policy` that
-- may have these ceilings, each once, and for each name the place of its pattern in the fields.

-- read_ceilings: read the accounts of these names, their ceilings and their allotments. In a key
-- of another type every account is damaged.

-- read_accounts_of: read the accounts to which tasks of these kinds count, and their ceilings.

-- The lines of `kinds`, 'COUNT FIRST LAST[ WHY]': how many tasks of a kind wait, the order of the
-- first task, an upper bound of the order of the last task, and why the tasks wait, as a scheduler
-- wrote.


-- parse_kind: return the count, the order of the first and of the last, and '' or ' WHY'; nil for
-- any other text.

-- find_first: return the smallest order in a queue, from low to high. Counts and does not read:
-- logins that may cancel a task may not list the ids of other tasks.

-- kind_line: return the new line of a kind from its queue (lib/kind/waiting.lua) and its old line.
-- Searches the key of the queue for the first task if the old first task may have left.
local function kind_line(queue, line_before)
  local parse_kind_1, parse_kind_2, parse_kind_3, parse_kind_4
  repeat -- parse_kind
    local line = line_before
    local size, first, last, why = string.match(line or '', '^([1-9]%d*) (%d+) (%d+)(.*)$')
    if not size or #size > 15 or #first > 16 or #last > 16 then
      parse_kind_1, parse_kind_2, parse_kind_3, parse_kind_4 = nil
      break
    end
    if why ~= '' and string.byte(why) ~= 32 then -- ' '
      parse_kind_1, parse_kind_2, parse_kind_3, parse_kind_4 = nil
      break
    end
    parse_kind_1, parse_kind_2, parse_kind_3, parse_kind_4 = tonumber(size), tonumber(first), tonumber(last), why
  until true
  local size, first, last, why = parse_kind_1, parse_kind_2, parse_kind_3, parse_kind_4
  if queue.before == 0 then
    first = queue.low
    last = queue.high
  elseif not size then
    first = queue.first or in_full().find_first(queue.pending, 0, HIGHEST_ORDER)
    last = queue.last or HIGHEST_ORDER
  elseif not queue.first and queue.left <= first then
    local low = math.min(first, queue.low)
    first = in_full().find_first(queue.pending, low, math.max(last, queue.high))
  end
  first = math.min(queue.first or first, queue.low)
  last = math.max(first, last, queue.high)
  return string.format('%d %d %d%s', queue.count, first, last, why or '')
end

-- Write the index of kinds: the lines that change, and their versions.




local HAS_READ_KINDS = false -- whether this call has read the hash `kinds`

-- read_lines: read the line of each kind that the call has looked at, before the first write. Reads
-- the hash at least once before a kind changes: a key of another type raises an error there.
local function read_lines(kinds)
  local names = {}
  local has_changed = false -- whether a kind changes
  for kind, queue in pairs(QUEUES) do
    if queue.before > 0 and queue.known == nil then
      names[#names + 1] = kind
    end
    has_changed = has_changed or queue.touched
  end
  if #names == 0 and has_changed and not HAS_READ_KINDS then
    redis.call('HEXISTS', kinds, '')
  end
  HAS_READ_KINDS = HAS_READ_KINDS or has_changed
  if #names == 0 then
    return
  end
  local lines
  repeat -- read_list
    local any, fields = kinds, names
    local size = #fields
    if size == 0 then
      lines = {}
      break
    end
    if size <= 1000 then
      lines = redis.call('HMGET', any, unpack(fields))
      break
    end
    local texts = {}
    for from = 1, size, 1000 do
      local chunk = redis.call('HMGET', any, unpack(fields, from, math.min(from + 999, size)))
      for i, text in ipairs(chunk) do
        texts[from + i - 1] = text
      end
    end
    lines = texts
  until true
  for i, kind in ipairs(names) do
    QUEUES[kind].known = lines[i]
  end
end

local ANNOUNCED = 0 -- how many kinds of TOUCHED have their new version
local LAST_VERSION = 0 -- the last version that the call has given, 0 before begin_versions

-- begin_versions: let LAST_VERSION be the version before the next one that the call gives. Versions
-- are for kinds that change, and for tasks that are submitted. A version is the time in hundredths
-- of a ms since 1970, or one more than the last version if that is larger. So a server that lost
-- writes does not repeat a version that a scheduler's copy has, and a clock that is set back
-- changes no order. A clock far in the future gives no version of 16 digits. A clock in the past
-- gives versions of 2020-01-02: an order has the time a day before, at the earliest.

-- announce: write a new version of each kind that changes into `changed`. ZADD may be the first
-- write of a script: a full server refuses ZADD before anything is written (docs/decisions/0015).
local function announce(changed)
  if ANNOUNCED == #TOUCHED then
    return
  end
  do -- begin_versions
    if LAST_VERSION == 0 then
      local time = math.min(now_ms() * 100 - 1, 9e14)
      LAST_VERSION = math.max(COUNTED.version, time, 157792320000000)
    end
  end
  local versions = {}
  for i = ANNOUNCED + 1, #TOUCHED do
    LAST_VERSION = LAST_VERSION + 1
    versions[#versions + 1] = string.format('%d', LAST_VERSION)
    versions[#versions + 1] = TOUCHED[i]
  end
  ANNOUNCED = #TOUCHED
  write_all('ZADD', changed, versions)
end

-- write_version: write the last version that the call has given. COUNTED.now is the version that
-- the queue has then, COUNTED.version the version before the call.

-- write_kinds: write the queues and lines that changed, each with a version of its own. Return
-- whether tasks wait of a kind of which no task waited before: then a scheduler is to be woken.

-- Room: how many tasks of a kind may be taken now, by the ceilings of all its accounts.
-- A rate is judged by the generic cell rate algorithm (ITU-T I.371): each unit takes an interval of
-- PERIOD / NUMBER ms, `next` is the end of the intervals taken, and `burst` intervals may lie ahead
-- of the clock.


-- check_holders: judge an account whose line and whose holders differ in number as damaged. A take
-- writes 'doubtful' into such a line, so that the leader's next look finds it.

-- tokens_of: return how many units of a rate may start now.

-- mark_full: let the account be written as full: it has refused tasks.

-- room_in: return for how many tasks, each of which holds `asked`, an account has room, `limit` at
-- most. If the ceiling allows fewer than `limit`, the account is marked as full. A rate marks it
-- only in one of several shards, because the leader may move the rate here.

-- room_of: return how many tasks of a kind may be taken, `limit` at most, by each of its accounts.

-- start_of: return when (ms) the rates of a kind's limits let its next task start, nil for now.

-- due_by_rates: return when the rates let a task of these kinds start, if that is before `due_ms`.

-- Write what a call has changed in accounts (lib/kind/accounts.lua), and tell of accounts.






-- add_amounts: add `factor` times what one task holds to what an account holds. Thousandths stay
-- exact.

-- is_listed: return whether a task is in the key of an account's holders.

-- remove_holders: take tasks out of the holders of an account. Only a task that was a holder
-- counts, so a repeated call changes nothing. asked: what one of the tasks holds.

-- remove_leaving: take the tasks that leave out of an account.

-- list_accounts: put the accounts that this call changes into TOUCHED, by name.

-- write_accounts: write the accounts that this call has touched.

-- write_changes: write the accounts and the kinds that this call has changed. Returns whether a
-- scheduler is to be woken: tasks of a new kind wait, or a full account has room.

-- tell_accounts: add ('=ACCOUNT', line) of the accounts of these kinds, each once, to the changes
-- of a take's reply. Return due_ms, or when a rate lets a task of the kinds start if it is sooner.

-- put_account_lines: put the lines of accounts into the changes of a take's reply. places: of the
-- names that begin with '='; the name of a kind may do so, too.

-- Tell a scheduler which lines of `kinds` changed since the version of its copy. The version is the
-- text 'V', or 'V/B' for a copy that is not whole yet: the scheduler began the copy anew when the
-- queue was at version B, and has read the changes up to V.


-- bad_since: return the error reply for a text that is no version of a copy, or nil.

-- own_changes: return {kind, line or '', ...} of the kinds that this call has changed. A take tells
-- of accounts by itself.

-- read_changes: return {kind, line or '', ...} of kinds and accounts that changed after a version,
-- the earliest change first, and the version that a copy reaches with these changes.

-- changes_since: return the changes that a copy lacks, of `limit` kinds at most: the version of the
-- copy with these changes, 1 if the copy must be dropped first, 1 if there are more changes, and
-- {kind, line or '', ...}.

-- Events: what happened out of the ordinary, for people, in a capped stream of each tag. No script
-- reads the stream, and no script stops because of it: a damaged stream begins anew. A script that
-- calls these functions has `events` among its keys, and has written before.


-- event_words: return the fields and values of an event for XADD.

-- is_damaged_stream: return whether XADD cannot add an event of now: the key is no stream, or the
-- last id of the stream is more than an hour in the future. id: the reply of XADD.

-- note_event: add an event; fields: task, name, node, attempt, scheduler, why and by, as far as the
-- event has them.

-- note_task: add an event of a task; place: the place of this attempt, or nil.

-- The order of a task: (9 - priority) * 9e14 + T. T is the time by which the task should start, in
-- hundredths of a ms since 2020. The task with the lowest order is taken first. An order has 16
-- digits at most and is below 2^53, so that Lua and a zset have each order exactly. T is a version
-- (kind/index.lua) that the submission gets for itself, plus an offset: the patience of 10 minutes,
-- or what the option `start` says. So tasks with the same offset start in the order in which they
-- were submitted. See parsync_redis/model/order.py.

-- base_of: return what the order of a task of this priority has beside the submission's version.

-- shift_of: return how much later than by its patience a task should start. start: the option
-- `start`, an offset in ms; nil for a task without it.

-- with_priority: return an order, as text, with another priority and the same T.

-- The successor of a task: the work that follows under the same id once its running attempt has
-- ended. extra:ID has it as `next`, 'PRIORITY DUE_MS OPTIONS KIND' with '-' for a missing word, and
-- `next_message`. OPTIONS has `order` if the successor has an order of its own.



-- parse_next: return the fields of a successor as a table; nil for any other text.

-- others_published: return whether the successor in this text was published by another process than
-- the task's own run.

-- become_next: turn a task into its successor, and forget the setbacks of the earlier run. Return
-- when (ms) the successor is due, nil for at once, and set `renewed` of the task. A task without a
-- successor, or with a damaged successor, stays as it was.

-- The outbox: results of tasks that ended where no worker saw it, for an agent to tell the result
-- backend.


-- to_outbox: queue the result of a task.

-- write_outbox: write the lines of this call. The newest 10,000 stay.

-- Read the record of a task. The hash that has the task tells its state. A script that calls these
-- functions has the keys tasks, taken, running, dead, ended, ended_1 and ended_2, and the prefix
-- extra:.


-- RARE: the rare fields, which most tasks never have, of the hash extra:ID. A record has them in
-- `extra`. The hash may also have next_message and message, which are large.
local RARE = {'why', 'history', 'cancel', 'next', 'ended_ms', 'run'}

-- ended_texts: return {id -> text} of tasks that have ended. The text has a line for each of
-- 'STATE MS', the task's line, its last entry of `running`, and why it ended.

-- load_extra: return the rare fields of a task as a table.

-- complete_record: add fields to the record of a task that has not ended: its state, its line (nil
-- for a damaged line), its attempt, the place and the start (ms) of its run, its rare fields, and
-- the kind as which the task counts to accounts, nil or false if it does not.

-- ended_record: return the record of a task that has ended, with the fields id, state and text.

-- load_tasks: return {id -> record} of the tasks that exist.

-- bad_records: return the error reply for a key of another type, or nil. Checks the keys that only
-- some calls read.

-- put_extra: write rare fields of a task, given as name, value, ... Before the first rare field of
-- a task the function deletes extra:ID: the hash of an ended task with the same id may be there.

-- put_line: write the line of a task.

-- Schedulers without work wait until a task of a new kind comes: one of which no task waited. The
-- field `waiters` of the queue's meta has the names of these schedulers, the newest last. Only take
-- writes the field: a client that submits wakes schedulers, but its login may not write the field.
-- The field `waiters` of a partition's meta has the schedulers that wait for a slot of the
-- partition.

-- sound_waiters: return these waiters; '' for a text that is longer than scripts write.

-- without_waiter: return the waiters without a scheduler, and how many waiters are behind it; nil
-- if the scheduler does not wait.

-- add_waiter: add a scheduler to the end of the waiters. A scheduler that waits already moves to
-- the end if wakes would pass over 16 waiters first, which may be dead. Dead names gather at the
-- front: the text is cut off there at 4,000 bytes.

-- write_waiters: write the waiters; an empty field is deleted.

-- remove_waiter: take a scheduler out of the waiters.

-- wake_newest: wake the newest waiter, but not `scheduler`. If nobody listens on the waiter's
-- channel, wake the waiter before. Try 16 waiters at most. Return the waiters that were not tried.

-- wake: wake the newest waiter. The waiter stays in the list until it takes.

-- stop_waiting: remove a scheduler that does not wait after its take from the waiters. If `waits`
-- is 'wake', also wake another scheduler; a scheduler that is woken here, or does not listen,
-- leaves the waiters.

-- note_waiting: write whether a scheduler waits after its take; waits: see take.

-- ring_oldest: tell the scheduler that has waited longest for a slot of a partition that slots are
-- free, and take it out of the waiters of the partition's meta. channel, partition: as the script
-- has them; free_count, slot_count: of the partition now. The script has written before, so a login
-- that may not send the message ends no call: the scheduler reads the partition within a gap.

-- Let tasks wait again and end them. Scripts that call these functions have, beside the keys of
-- lib/task/record.lua, messages and pending:.








-- bad_home: look at the queue in which a task would wait. Return the error reply for a key of
-- another type, or nil.

-- look_at_index: set APART if the index of waiting tasks is damaged. A script that reports on runs
-- must work with a damaged index too.

-- look_at_home: set APART if the queue in which a task would wait is a key of another type.

-- leave_state: take a task out of the hash of its state, `taken` or `running`, and out of the
-- accounts to which it counts. undone: whether its take is undone.

-- note_attempt: write into the line how often the task was taken, and whether a run began. The line
-- says `redelivered` if a run of the same message had begun.

-- note_ready: write into the line since when the task is ready. Only a task that has started is
-- ready anew: the delay of any other task goes on.

-- to_wait: let a task wait again, at its place in the order of its kind.
-- due: nil, or the time (ms) until which the task waits in `later`
-- put_off: whether the run of the task could not begin: the task stays ready since before
-- A successor that the task's attempt submitted is removed: otherwise the success of a later run
-- would start the successor. A successor that another process published stays.

-- write_end: move the record of a task to `ended`.

-- end_task: end a task that is in no kind's queue. is_unseen: whether no worker saw the end of the
-- task; then its message is kept for the process that tells the result backend.

-- end_unseen: end a task without a run: put its result into the outbox, and add an event.

-- bad_queues: return the error reply if a queue in which one of the tasks waits is damaged, or nil.

-- write_waiting: write what waits now and what accounts hold; wake a scheduler if it may take more.

-- Judge conditions on labels: zone:a|b, gpu_model:!t4, zone:*, vram_gb:>=24. The label of a node
-- may have several values. parsync_redis/model/condition.py does the same for the view; a property
-- test compares the two.

-- is_number: return whether a text is a number, as conditions compare numbers.

-- sign_of: return the comparison of a condition, '>=', '<=', '>' or '<'; nil for other conditions.

-- is_condition: return whether a text is a condition.

-- values_of: return the values of a label in an offer, which has a space before and behind.

-- compare: return whether a comparison of two numbers is true.

-- is_met: return whether a condition is true of a node whose label has these values.

-- labels_fit: a rule (lib/kind/fits.lua): the node meets all conditions on labels. Labels
-- `parsync.NAME` have rules of their own.

-- Amounts with decimals, as two whole numbers in a table: 1.25 gpu is gpu = 1 and 'gpu.' = 250, the
-- thousandths from 0 to 999. A negative amount is rounded down: -0.5 gpu is gpu = -1, 'gpu.' = 500.
-- A ledger is such a table: the amounts that a node has left. parsync_redis/model/amount.py
-- computes the same.


-- is_part: return whether a text is an amount with decimals, '1.25', that ends with no zero.

-- set_part: set an amount with decimals, '-0.5', in a ledger. Does nothing for a text of another
-- form.

-- part_fits: return whether a ledger has enough of an amount with decimals; key: 'gpu.'. The ledger
-- has enough if it has as many thousandths as are asked, or a larger whole number.

-- add_part: add thousandths to an amount of a ledger, if the node declares the amount.

-- part_text: return the text of an amount with thousandths.

-- size_text: return the text of an amount of a ledger.

-- undeclared: return how much a node has of an amount that is not in its offer: 1 of 'apart_WORD'
-- (the option `apart` of a task), 0 of any other amount.

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

-- The amounts that a task holds on a node: those of its needs, with single devices in the place of
-- kinds of devices.


-- rank_device: return what a device has left, as a list that is_fuller compares: the thousandths of
-- the device, each attribute and its thousandths, and the index. Also return whether the device has
-- enough left for a task.

-- is_fuller: return whether the device of a rank has less left than the device of another rank.

-- put_amount: write an amount that a task holds; `part` has its thousandths or is nil.

-- choose_devices: add to `held_amounts` the devices of a kind that a task gets: the fullest devices
-- that still have enough. Return whether there are enough devices.

-- hold: return the amounts that a task would hold on a node, with single devices; nil if the node
-- has too little left. available: what the node has left; needed: what the task asks for.

-- Judge taints: parsync.taint:spot of an offer, parsync.taint:old|spot of needs that tolerate both.
-- parsync_redis/model/taints.py


-- taints_fit: a rule (lib/kind/fits.lua): the task tolerates each taint of the node.

-- Judge what fits. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100',
-- where NAME=N is an amount and NAME:VALUE a label. In needs VALUE may be a condition
-- (lib/kind/conditions.lua). placement/fits.py does the same for the view; a property test compares
-- the two.





-- Answers that this call has found: most tasks of a call need the same, most nodes offer the same.

-- is_rare_word: return whether a word is an amount with decimals, an amount of devices or, in
-- needs, a label with a condition.

-- has_only_words: return whether a text has only words of amounts and labels. of_needs: labels may
-- have conditions.

-- well_formed: return whether a text has only words NAME=N and NAME:VALUE, as offers and ledgers
-- have.

-- are_needs: return whether a text has only words NAME=N and NAME:CONDITION.

-- amounts: return {name -> number} of the words NAME=N of a text. lib/node/thousandths.lua says how
-- amounts with decimals are kept.

-- A rule is a function NAME_fits(offer, needs). It returns whether a node that offers `offer` may
-- take a task that needs `needs`. The rules stand here and in the included libraries, in the order
-- of parsync_redis/placement/rules.

-- amounts_fit: a rule: the node has the amounts. `slots` is an amount here.

-- protection_fits: a rule: the task asks for some of the node's devices, if the node has devices
-- and does not share them.

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.

-- Check the fields of a task's line that a run depends on.





-- is_sound_limit: return whether a word of a kind is a limit, 'stripe' or 'stripe*2'.

-- is_sound_tenant: return whether a word between two '/' of a tenant is well formed.

-- are_words: return whether words, that a pattern finds in a text, are sound, `most` at most.
-- doubled: two marks of those between words.

-- are_accounts: return whether the tenant and the limits in a kind are well formed; see
-- parsync_redis/model/account.py.

-- are_preferences: return whether the preferences of a kind are well formed; see
-- parsync_redis/model/preferences.py. Schedulers pass over rules that they do not know. The key of
-- `warm` is the name of an account.

-- split_counted: return the name, the needs and the limits of a sound kind whose tasks need slots
-- only and count to a tenant without '/' or one limit or both; nil for any other kind. No pattern
-- needs another function, which would cost calls without accounts, too.

-- flaw: return which part of a line is damaged, or nil; the line is nil if its text is no line. A
-- task with a flaw cannot run: it ends as failed.

-- Tasks that a take meets and does not give to its scheduler: tasks that come due, expired tasks,
-- and damaged tasks. `not_taken` is {row, id, ...}; the row of a task that was delayed is 0.


local DUE_IDS = {} -- ids of the delayed tasks that have come due

-- is_dead: return whether a task is in the list of the dead.

-- find_due: read `limit` delayed tasks that have come due. Add those with a damaged line to
-- `not_taken`. Return an error reply or nil.

-- enter_due: let the tasks of DUE_IDS wait. Return {id, line, ...} of the tasks whose line changes.

-- write_due: take the tasks of DUE_IDS out of `later`, and write the lines that enter_due returned.

-- load_not_taken: read the records of tasks that were not taken. Return an error reply or nil.

-- end_or_return: end a task that has expired or is damaged, and put any other task back where it
-- waits. Return why the task ended, if it is damaged.

-- end_not_taken: end the tasks that were not taken, or put them back. Add to the tasks of the reply
-- those that are damaged, with '' in the place of the attempt.

-- Choose the tasks that a take gives to its scheduler, as many of a kind as its accounts have room
-- for.



local GIVEN = {} -- the tasks of the reply: {row, id, attempt, ready_ms, ...}
local ATTEMPTS = {} -- {id, attempt, ...} of the tasks that this call gives
local NOT_TAKEN = {} -- {row, id, ...} of tasks that nobody can take; see task/not_taken
local LEAVING = {} -- kind -> how many tasks leave its queue
local CANDIDATES -- the ids of the first tasks of the kinds of all rows
local LINES, OWNERS, RUNS -- what `tasks`, `taken` and `running` have of them
local BEHIND = {} -- kind -> the order of the first task that stays, nil if it is not known

-- count_taken: let taken tasks of a kind count to their accounts. ids: {id, any, ...}, from place
-- `first` on.

-- enter_holders: enter tasks among the holders of an account. If that is a key of another type, the
-- line becomes doubtful, and the leader counts anew. entries: {ms, id, ...}

-- join: return the values of lists as one list.

-- write_holders: write the tasks that count_taken entered among the holders of their accounts, and
-- which accounts want an allotment.

-- read_candidates: read the first tasks of the kinds of all rows: with one command each for the
-- kinds together. tasks, taken, running: the keys.

-- take_first: choose the first tasks of a kind, `limit` at most: put them into GIVEN and ATTEMPTS,
-- or into NOT_TAKEN. A limit of 0 only marks accounts that have no room for a task. The second time
-- that a call asks for a kind it chooses none. number: the row of the kind in this call.

local MADE_COUNTING
function counting()
  if MADE_COUNTING then return MADE_COUNTING end
  local BASE = string.sub(KEYS[1] or '', 1, -5)
  local KEY = {accounts = BASE .. 'accounts', policy = BASE .. 'policy', holders = BASE .. 'holders:'}
  local NOT_COUNTED = ' next units shards rate burst '
  local ASKED = {} -- name, needs and strategy of a kind -> {name of an amount -> number}
  local SHARES = {} -- kind -> a list of shares, tables with the fields below
  local UNIT = {units = 1}
  local CHANGED_ACCOUNTS = {} -- the accounts that this call changes
  local ARE_READABLE = true -- false if `accounts` is a key of another type
  local HAS_DIVIDED = false -- whether a ceiling that this call has read is divided among shards
  local LISTED = 0 -- how many accounts of CHANGED_ACCOUNTS are in TOUCHED
  local HAS_ROOM = false -- whether tasks have left an account that was full
  local function write_all(command, any, values)
    local size = #values
    if size == 0 then
      return 0
    end
    if size <= 1000 then
      return redis.call(command, any, unpack(values))
    end
    local sum = 0
    for from = 1, size, 1000 do
      sum = sum + redis.call(command, any, unpack(values, from, math.min(from + 999, size)))
    end
    return sum
  end
  local function now_ms()
    if NOW then
      return NOW
    end
    local time = redis.call('TIME') -- seconds and microseconds
    NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
    return NOW
  end
  local function parse_words(name, account, line)
    local count, words = string.match(line, '^n=(%d+)(.*)$')
    if not count or #count > 15 or #words > 4000 then
      account.count = nil
      return
    end
    local is_full = string.sub(words, -5) == ' full'
    for word in string.gmatch(is_full and string.sub(words, 1, -6) or words, '[^ ]+') do
      local amount_name, amount = string.match(word, '^(%l[%l%d_.]*)=(%d[%d.]*)$')
      amount = tonumber(amount)
      if not amount then
        account.count = nil
        return
      end
      account.held[amount_name] = amount
    end
    local units = string.byte(name) == 64 and math.huge or account.held.units or 0 -- '@'
    account.count = units >= tonumber(count) and tonumber(count) or nil
    account.next = account.held.next
    account.held.next = nil
    account.full = is_full
    account.is_shut = is_full and account.count == 0
  end
  local function number_text(amount)
    return string.format(amount % 1 == 0 and '%d' or '%.16g', amount)
  end
  local function account_text(account)
    local amounts_held = account.held
    local name, amount = next(amounts_held)
    local is_short = name and not next(amounts_held, name) and not account.next
    if is_short and amount > 0 and amount % 1 == 0 then
      return string.format('n=%d %s=%d', account.count, name, amount)
    end
    local names = {}
    for word in pairs(amounts_held) do
      if word ~= 'slots' and word ~= 'units' then
        names[#names + 1] = word
      end
    end
    table.sort(names)
    local words = {string.format('n=%d', account.count)}
    for _, word in ipairs({'slots', 'units', unpack(names)}) do
      local number = amounts_held[word] or 0
      words[#words + 1] = number > 0 and word .. '=' .. number_text(number) or nil
    end
    words[#words + 1] = account.next and string.format('next=%.3f', account.next) or nil
    return table.concat(words, ' ')
  end
  local function split_last(text, mark)
    local from, to = string.find(text, mark, 1, true)
    while from do
      local word = string.match(text, '^%S+$', to + 1)
      if word then
        return string.sub(text, 1, from - 1), word
      end
      from, to = string.find(text, mark, to + 1, true)
    end
    return text
  end
  local function split_accounts(kind)
    local head, limits = split_last(kind, ' under=')
    local bare, tenant = split_last(head, ' for=')
    return bare, tenant, limits
  end
  local function amounts_asked(needs)
    if ASKED[needs] then
      return ASKED[needs]
    end
    local asked = {}
    ASKED[needs] = asked
    local slots = string.match(needs, '^[^ =]+ slots=(%d+)$')
    if slots then
      asked.slots = tonumber(slots)
      return asked
    end
    for name, amount in string.gmatch(needs, '%f[!-~](%l[%l%d_.]*)=(%d+%.?%d*)') do
      local is_other = string.find(NOT_COUNTED, ' ' .. name .. ' ', 1, true)
      if not is_other and string.sub(name, 1, 6) ~= 'apart_' then
        asked[name] = tonumber(amount)
      end
    end
    return asked
  end
  local function shares_of(kind)
    local shares = SHARES[kind]
    if shares then
      return shares
    end
    shares = {}
    SHARES[kind] = shares
    local needs, tenant, limits = split_accounts(kind)
    if tenant and string.find(tenant, '/', 1, true) then
      do -- add_tenants
        local shares, tenant, asked = shares, tenant, amounts_asked(needs)
        local path
        for word in string.gmatch(tenant, '[^/]+') do
          path = path and path .. '/' .. word or '@' .. word
          shares[#shares + 1] = {name = path, asked = asked}
        end
      end
    elseif tenant then
      shares[1] = {name = '@' .. tenant, asked = amounts_asked(needs)}
    end
    if limits and string.find(limits, '[,*]') then
      do -- add_limits
        local shares, limits = shares, limits
        for name, units in string.gmatch(limits, '([^,*]+)%*?(%d*)') do
          shares[#shares + 1] = {name = name, asked = {units = tonumber(units) or 1}}
        end
      end
    elseif limits then
      shares[#shares + 1] = {name = limits, asked = UNIT}
    end
    if string.find(kind, 'warm=', 1, true) then
      do -- add_key
        local shares, kind = shares, kind
        local split_kind_1, split_kind_2, split_kind_3, split_kind_4
        do -- split_kind
          local kind = kind
          local name, words = string.match(split_accounts(kind), '^(%S+) (.*)$')
          local needs, strategy = string.match(words or '', '^(.*) (%l+)$')
          needs = needs or words
          local bare, prefer = split_last(needs or '', ' prefer=')
          split_kind_1, split_kind_2, split_kind_3, split_kind_4 = name, needs and bare, strategy or '', prefer
        end
        local _, _, _, prefer = split_kind_1, split_kind_2, split_kind_3, split_kind_4
        local key = string.match(',' .. (prefer or ''), ',warm=([^,]+)')
        if key then
          shares[#shares + 1] = {name = '~' .. key, asked = UNIT, is_open = true}
        end
      end
    end
    return shares
  end
  local function account_of(name)
    local account = ACCOUNTS[name]
    if not account then
      account = { -- room for sixteen fields: to add one to a full table takes longer
        is_read = false,
        is_touched = false,
        is_told = false,
        count = 0,
        held = false,
        full = false,
        returned = 0,
        text = false,
        ceiling_text = false,
      }
      ACCOUNTS[name] = account
    end
    return account
  end
  local function read_accounts(names)
    local unread = {}
    for i = 1, #names do
      if not account_of(names[i]).is_read then
        unread[#unread + 1] = names[i]
      end
    end
    for from = 1, #unread, 1000 do
      local to = math.min(from + 999, #unread)
      local lines = redis.pcall('HMGET', KEY.accounts, unpack(unread, from, to))
      ARE_READABLE = ARE_READABLE and not lines.err
      for i = from, to do
        repeat -- parse_account
          local name, account, line = unread[i], ACCOUNTS[unread[i]], lines.err and '' or lines[i - from + 1]
          account.is_read = true
          account.held = {}
          if not line then
            break
          end
          local count, word, amount = string.match(line, '^n=(%d+) (%l+)=(%d+)$')
          local is_usual = count and #count < 16 and #amount < 16 and word ~= 'next'
          if is_usual and string.byte(name) ~= 64 then -- '@'
            is_usual = word == 'units' and tonumber(amount) >= tonumber(count)
          end
          if is_usual then
            account.count = tonumber(count)
            account.held[word] = tonumber(amount)
          else
            parse_words(name, account, line)
          end
        until true
      end
    end
  end
  local function touch_account(name)
    local account = account_of(name)
    if not account.is_touched then
      account.is_touched = true
      CHANGED_ACCOUNTS[#CHANGED_ACCOUNTS + 1] = name
    end
    return account
  end
  local function leave_accounts(kind, ids, undone)
    local shares = shares_of(kind)
    for i = 1, #shares do
      local share = shares[i]
      local account = touch_account(share.name)
      local leaving = account.leaving or {}
      account.leaving = leaving
      leaving[#leaving + 1] = share.asked
      leaving[#leaving + 1] = ids
      if undone then
        account.returned = account.returned + #ids * (share.asked.units or 0)
      end
    end
  end
  local function allot_rate(account, part)
    local number, period = string.match(account.ceiling_text, 'rate=(%d+)/(%d+)')
    local whole = account.burst
    account.burst = math.min(whole, part)
    if account.burst > 0 then
      account.interval = account.interval * whole / account.burst
    end
    local numerator = math.max(1, tonumber(number) * account.burst)
    return {
      rate = string.format('rate=%.0f/%.0f', numerator, tonumber(period) * whole),
      burst = string.format('burst=%d', account.burst),
    }
  end
  local function account_line(name)
    local account = ACCOUNTS[name]
    local held_text = account.count and (account.text or account_text(account)) or 'damaged'
    local mark = account.count and account.full and ' full' or ''
    return held_text .. mark .. ' of ' .. account.ceiling_text
  end
  local function words_of(text)
    local words = {}
    local rate_period
    for word in string.gmatch(#text <= 4096 and text or '', '[^ ]+') do
      local name, text_of_amount, divisor = string.match(word, '^(%l[%l%d_.]*)=(%d[%d.]*)(.*)$')
      local amount = tonumber(text_of_amount)
      local period = name == 'rate' and tonumber(string.match(divisor, '^/(%d+)$'))
      if not amount or name == 'rate' and not period or name ~= 'rate' and divisor ~= '' then
        return
      end
      words[name] = amount
      rate_period = period or rate_period
    end
    local shards = words.shards
    words.shards = nil
    words.declared = nil
    if next(words) and words.rate ~= 0 and rate_period ~= 0 then
      return words, rate_period, shards
    end
  end
  local function read_policy(fields)
    local texts = {}
    for from = 1, #fields, 1000 do
      local to = math.min(from + 999, #fields)
      local chunk = redis.pcall('HMGET', KEY.policy, unpack(fields, from, to))
      if chunk.err then
        return nil
      end
      if to == #fields and from == 1 then
        return chunk
      end
      for i, text in ipairs(chunk) do
        texts[from + i - 1] = text
      end
    end
    return texts
  end
  local function read_ceilings(names)
    read_accounts(names)
    local list_fields_1, list_fields_2, list_fields_3
    do -- list_fields
      local names = names
      local unread = {}
      local fields = {}
      for i = 1, #names do
        local name = names[i]
        local account = ACCOUNTS[name]
        if not account.ceiling_text then
          account.ceiling_text = '-'
          unread[#unread + 1] = name
          fields[#fields + 1] = name
        end
      end
      local places = {}
      local pattern_places = {}
      for i = 1, #unread do
        local name = unread[i]
        local pattern
        repeat -- pattern_of
          local name = name
          if string.byte(name) == 64 then -- '@'
            local parent = string.match(name, '^(.*/)[^/]*$')
            pattern = (parent or '@') .. '*'
            break
          end
          local head = string.match(name, '^([^:]*:)')
          pattern = head and head .. '*' or name
        until true
        local place = pattern == name and i or pattern_places[pattern] or #fields + 1
        fields[place] = fields[place] or pattern
        pattern_places[pattern] = place
        places[i] = place
      end
      list_fields_1, list_fields_2, list_fields_3 = unread, fields, places
    end
    local unread, fields, places = list_fields_1, list_fields_2, list_fields_3
    local texts = read_policy(fields)
    for i = 1, #unread do
      local account = ACCOUNTS[unread[i]]
      repeat -- parse_ceiling
        local account, text = account, texts and (texts[i] or texts[places[i]])
        local name, most = string.match(text or '', '^(%l+)=(%d+)$')
        if (name == 'units' or name == 'slots') and #most < 16 then
          account.ceiling_text = text
          account.allowed = {[name] = tonumber(most)}
          break
        end
        local words, period, shards = words_of(text or '')
        account.is_unread = text and not words
        account.ceiling_text = words and text or text and '?' or '-'
        account.allowed = text and words
        if period then
          account.interval = period / words.rate
          account.least_interval = account.interval
          account.burst = account.allowed.burst or 1
          account.allowed.rate = nil
          account.allowed.burst = nil
        end
        if shards then
          account.is_divided = true
          HAS_DIVIDED = true
        end
      until true
      if not texts then
        account.is_unread = true
        account.ceiling_text = '?'
      end
      if account.is_unread then
        account.count = nil
      end
    end
    if HAS_DIVIDED then
      do -- read_allotments
        local names = unread
        local divided = {}
        local fields = {}
        for _, name in ipairs(names) do
          if account_of(name).is_divided then
            divided[#divided + 1] = name
            fields[#fields + 1] = '=' .. name
          end
        end
        for from = 1, #fields, 1000 do
          local to = math.min(from + 999, #fields)
          local texts = redis.call('HMGET', KEY.policy, unpack(fields, from, to))
          for i = from, to do
            do -- apply_allotment
              local account, text = account_of(divided[i]), texts[i - from + 1]
              local parts = {}
              text = text and #text <= 4096 and text
              for word, amount in string.gmatch(text or '', '%f[!-~](%l[%l%d_.]*)=(%d+%.?%d*)') do
                parts[word] = tonumber(amount)
              end
              account.allotment = text
              account.whole_text = account.ceiling_text
              local words = account.interval and allot_rate(account, math.floor(parts.burst or 0)) or {}
              for name, amount in pairs(account.allowed) do
                account.allowed[name] = math.min(amount, parts[name] or 0)
                words[name] = name .. '=' .. number_text(account.allowed[name])
              end
              account.ceiling_text = string.gsub(account.whole_text, '%f[!-~](%l[%l%d_.]*)=[%d./]+', words)
            end
          end
        end
      end
    end
  end
  local function read_accounts_of(kinds_asked)
    local names = {}
    for i = 1, #kinds_asked do
      local shares = shares_of(kinds_asked[i])
      for k = 1, #shares do
        names[#names + 1] = shares[k].name
      end
    end
    read_ceilings(names)
  end
  local function tokens_of(account)
    local ahead = math.max((account.next or 0) - now_ms(), 0)
    return math.floor(account.burst - ahead / account.interval + 1e-6)
  end
  local function mark_full(name, account)
    if account.count and not account.full then
      account.full = true
      touch_account(name)
    end
  end
  local function room_in(name, asked, limit)
    local account = account_of(name)
    local room = limit
    if not account.count or not account.allowed and string.byte(name) ~= 64 then
      room = 0
    end
    if room > 0 and account.allowed then
      for word, allowed in pairs(account.allowed) do
        local each = asked[word] or 0
        if each > 0 then
          room = math.min(room, math.floor((allowed - (account.held[word] or 0)) / each + 1e-6))
        end
      end
    end
    account.is_shut = account.is_shut or room <= 0
    if room < limit then
      mark_full(name, account)
    end
    if room > 0 and account.interval then
      room = math.min(room, math.floor(tokens_of(account) / asked.units))
      if room < limit and account.is_divided then
        mark_full(name, account)
      end
    end
    return math.max(room, 0)
  end
  local function room_of(kind, limit)
    local room = limit
    local shares = shares_of(kind)
    for i = 1, #shares do
      local share = shares[i]
      local account = account_of(share.name)
      local is_judged = account.allowed or account.is_unread or share.asked.units
      if is_judged and not share.is_open then -- a tenant without a ceiling has room
        repeat -- check_holders
          local name = share.name
          local account = account_of(name)
          if account.is_checked then
            break
          end
          account.is_checked = true
          local size = redis.pcall('ZCARD', KEY.holders .. name)
          if account.count and size ~= account.count then
            account.count = nil
            account.is_doubtful = true
          end
        until true
        if account.is_doubtful then
          touch_account(share.name)
        end
        room = math.min(room, room_in(share.name, share.asked, limit))
      end
    end
    return room
  end
  local function due_by_rates(kinds_asked, due_ms)
    for _, kind in ipairs(kinds_asked) do
      local start_of_1
      do -- start_of
        local kind = kind
        local due
        for _, share in ipairs(shares_of(kind)) do
          local account = account_of(share.name)
          if account.interval and share.asked.units <= account.burst then
            local start = (account.next or 0) - (account.burst - share.asked.units) * account.interval
            if start > tonumber(now_ms()) then
              due = math.max(due or 0, math.ceil(start))
            end
          end
        end
        start_of_1 = due
      end
      local start = start_of_1
      if start and start < (tonumber(due_ms) or math.huge) then
        due_ms = string.format('%d', start)
      end
    end
    return due_ms
  end
  local function add_amounts(account, asked, factor)
    local amounts_held = account.held
    for name, amount in pairs(asked) do
      local sum = (amounts_held[name] or 0) + factor * amount
      amounts_held[name] = math.max(0, sum % 1 == 0 and sum or math.floor(sum * 1000 + 0.5) / 1000)
    end
  end
  local function list_accounts()
    local names = {}
    for i = LISTED + 1, #CHANGED_ACCOUNTS do
      names[#names + 1] = CHANGED_ACCOUNTS[i]
    end
    table.sort(names)
    for _, name in ipairs(names) do
      TOUCHED[#TOUCHED + 1] = '=' .. name
    end
    LISTED = #CHANGED_ACCOUNTS
  end
  local function write_accounts()
    list_accounts()
    read_accounts(CHANGED_ACCOUNTS)
    local lines = {}
    local emptied = {}
    for i = 1, #CHANGED_ACCOUNTS do
      local name = CHANGED_ACCOUNTS[i]
      local account = ACCOUNTS[name]
      if account.leaving then
        do -- remove_leaving
          local name, account = name, account
          local leaving = account.leaving
          for i = 1, #leaving, 2 do
            do -- remove_holders
              local name, account, asked, ids = name, account, leaving[i], leaving[i + 1]
              for from = 1, #ids, 1000 do
                local to = math.min(from + 999, #ids)
                local removed = redis.pcall('ZREM', KEY.holders .. name, unpack(ids, from, to))
                if account.count and type(removed) == 'number' and removed > 0 then
                  account.count = math.max(0, account.count - removed)
                  add_amounts(account, asked, -removed)
                  HAS_ROOM = HAS_ROOM or account.full
                  account.full = false
                end
              end
            end
          end
          account.leaving = nil
          if account.returned > 0 and account.next then
            read_ceilings({name})
            account.next = account.next - account.returned * (account.least_interval or 0)
            account.returned = 0
          end
        end
      end
      local is_waited_for = account.full and (account.is_shut or account.is_divided)
      local has_rate_used = account.next and account.next > tonumber(now_ms())
      if account.count == 0 and not is_waited_for and not has_rate_used then
        account.full = false
        emptied[#emptied + 1] = name
      elseif account.is_doubtful then
        lines[#lines + 1] = name
        lines[#lines + 1] = 'doubtful'
      elseif account.count then
        account.text = account_text(account)
        lines[#lines + 1] = name
        lines[#lines + 1] = account.full and account.text .. ' full' or account.text
      end
    end
    if ARE_READABLE then
      write_all('HSET', KEY.accounts, lines)
      write_all('HDEL', KEY.accounts, emptied)
    end
  end
  local function tell_accounts(changes, kinds_asked, due_ms)
    local has_rate = false
    for i = 1, #kinds_asked do
      local shares = shares_of(kinds_asked[i])
      for k = 1, #shares do
        local name = shares[k].name
        local account = ACCOUNTS[name]
        if not account.is_told then
          account.is_told = true
          has_rate = has_rate or account.interval
          changes[#changes + 1] = '=' .. name
          changes[#changes + 1] = account_line(name)
        end
      end
    end
    return has_rate and due_by_rates(kinds_asked, due_ms) or due_ms
  end
  local function put_account_lines(changes, places)
    local names = {}
    for _, place in ipairs(places) do
      names[#names + 1] = string.match(changes[place], '^=(%S+)$')
    end
    read_ceilings(names)
    for _, place in ipairs(places) do
      local name = string.match(changes[place], '^=(%S+)$')
      if name then
        changes[place + 1] = account_line(name)
      end
    end
  end
  local function count_taken(kind, ids, first)
    local size = math.ceil((#ids - first + 1) / 2)
    if size == 0 then
      return
    end
    local now = now_ms()
    local entries = {}
    for i = 1, 2 * size, 2 do
      entries[i] = now
      entries[i + 1] = ids[first + i - 1]
    end
    local shares = shares_of(kind)
    for i = 1, #shares do
      local share = shares[i]
      local account = touch_account(share.name)
      if account.entering then
        account.entering[#account.entering + 1] = entries
      else
        account.entering = {entries}
      end
      if account.count then -- a tenant without a ceiling may have a damaged line
        account.count = account.count + size
        add_amounts(account, share.asked, size)
      end
      if account.interval then
        local units = size * share.asked.units
        account.next = math.max(account.next or 0, tonumber(now)) + units * account.interval
      end
    end
  end
  local function join(lists)
    if #lists == 1 then
      return lists[1]
    end
    local values = {}
    for _, list in ipairs(lists) do
      for _, value in ipairs(list) do
        values[#values + 1] = value
      end
    end
    return values
  end
  local function write_holders()
    if HAS_DIVIDED then
      do -- list_wanting
        local fields = {}
        for name, account in pairs(ACCOUNTS) do
          if account.is_divided and account.full and not account.allotment then
            fields[#fields + 1] = '=' .. name
            fields[#fields + 1] = '0'
          end
        end
        write_all('HSET', KEY.policy, fields)
      end
    end
    for i = 1, #CHANGED_ACCOUNTS do
      local name = CHANGED_ACCOUNTS[i]
      local account = ACCOUNTS[name]
      if account.entering then
        do -- enter_holders
          local name, account, entries = name, account, join(account.entering)
          for from = 1, #entries, 1000 do
            local to = math.min(from + 999, #entries)
            local added = redis.pcall('ZADD', KEY.holders .. name, unpack(entries, from, to))
            if type(added) == 'table' then
              account.count = nil
              account.is_doubtful = true
            end
          end
        end
      end
    end
  end
  MADE_COUNTING = {count_taken = count_taken, leave_accounts = leave_accounts, list_accounts = list_accounts, put_account_lines = put_account_lines, read_accounts_of = read_accounts_of, room_of = room_of, tell_accounts = tell_accounts, write_accounts = write_accounts, write_holders = write_holders}
  local MADE_IN_FULL
  in_full = function()
    if MADE_IN_FULL then return MADE_IN_FULL end
    BASE = string.sub(KEYS[1] or '', 1, -5)
    KEY = {meta = KEYS[1], kinds = KEYS[2], changed = KEYS[3], later = KEYS[4], tasks = KEYS[5], taken = KEYS[6], running = KEYS[7], pending = KEYS[8], messages = BASE .. 'messages', dead = BASE .. 'dead', ended = BASE .. 'ended', ended_1 = BASE .. 'ended_1', ended_2 = BASE .. 'ended_2', outbox = BASE .. 'outbox', events = BASE .. 'events', accounts = BASE .. 'accounts', policy = BASE .. 'policy', extra = BASE .. 'extra:', holders = BASE .. 'holders:'}
    local STRATEGY = {latency = true, quality = true, adaptive = true}
    local OUTBOX = {} -- lines 'ID STATE WHY' of this call
    local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
    local DAMAGED = 'its record is damaged'
    local PARTS = {} -- 'gpu.' -> true for each such key that this call has seen
    local SOUND = {} -- text -> whether it has only words of amounts and labels
    local NEEDED = {} -- needs -> the amounts {name -> number}
    local FITTING = {} -- needs -> {offer -> whether the offer fits}
    local DUE_LINES = {} -- the line of each task of DUE_IDS, false for a missing or damaged line
    local RECORDS = {} -- id -> record, of the tasks that were not taken
    local function bad_type(any, wanted)
      local actual = redis.call('TYPE', any).ok
      if actual == wanted or actual == 'none' then
        return nil
      end
      return redis.error_reply(string.format('PSRECORD %s is a %s, not a %s', any, actual, wanted))
    end
    local function too_long(verb, row, limits)
      for i = 1, #limits, 2 do
        local name = limits[i]
        local limit = limits[i + 1]
        local text = ARGV[row + (i + 1) / 2]
        if #text > limit then
          return redis.error_reply(string.format('PSARGS %s: %s has %d bytes, %d at most',
            verb, name, #text, limit))
        end
      end
    end
    local function too_many(verb, limit)
      return redis.error_reply(string.format('PSARGS %s takes %d rows at most', verb, limit))
    end
    local function bad_number(what, text, low, high)
      local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
      if number and number >= low and number <= high then
        return nil
      end
      return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d',
        what, low, high))
    end
    local function bad_retention(text)
      return bad_number('retention_s', text, 1, 31536000)
    end
    local function write_all(command, any, values)
      local size = #values
      if size == 0 then
        return 0
      end
      if size <= 1000 then
        return redis.call(command, any, unpack(values))
      end
      local sum = 0
      for from = 1, size, 1000 do
        sum = sum + redis.call(command, any, unpack(values, from, math.min(from + 999, size)))
      end
      return sum
    end
    local function read_fields(any, fields)
      local texts = {}
      for from = 0, #fields - 1, 1000 do
        local chunk = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
        for i, text in ipairs(chunk) do
          if text then -- a nil would take a place in the table
            texts[fields[from + i]] = text
          end
        end
      end
      return texts
    end
    local function now_ms()
      if NOW then
        return NOW
      end
      local time = redis.call('TIME') -- seconds and microseconds
      NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
      return NOW
    end
    local function is_past(moment, now)
      local moment_ms = moment and tonumber(moment)
      return moment_ms and moment_ms <= tonumber(now)
    end
    local function split_last(text, mark)
      local from, to = string.find(text, mark, 1, true)
      while from do
        local word = string.match(text, '^%S+$', to + 1)
        if word then
          return string.sub(text, 1, from - 1), word
        end
        from, to = string.find(text, mark, to + 1, true)
      end
      return text
    end
    local function split_accounts(kind)
      local head, limits = split_last(kind, ' under=')
      local bare, tenant = split_last(head, ' for=')
      return bare, tenant, limits
    end
    local function split_kind(kind)
      local name, words = string.match(split_accounts(kind), '^(%S+) (.*)$')
      local needs, strategy = string.match(words or '', '^(.*) (%l+)$')
      needs = needs or words
      local bare, prefer = split_last(needs or '', ' prefer=')
      return name, needs and bare, strategy or '', prefer
    end
    local function parse_line(text)
      if text and #text > 20000 then
        return nil
      end
      local mark, takes, life, order, ready, submitted, options, kind = string.match(text or '',
        '^(%+?)(%d+)@(%d+) (%d+) (%d+) (%d+) (%S+) (%S+ slots=%d[^\n]*)$')
      if not mark or #takes > 9 or #life > 15 then
        return nil
      end
      if #order > 16 or #ready > 15 or #submitted > 15 then
        return nil
      end
      return {
        mark = mark,
        takes = tonumber(takes),
        life = life,
        order = order,
        ready = ready,
        submitted = submitted,
        options = options,
        kind = kind,
      }
    end
    local function line_text(line)
      return string.format('%s%d@%s %s %s %s %s %s', line.mark, line.takes, line.life, line.order,
        line.ready, line.submitted, line.options, line.kind)
    end
    local function option(line, name)
      return string.match(',' .. line.options, ',' .. name .. '=([^,]*)')
    end
    local function set_option(line, name, value)
      local prefix = name .. '='
      local words = {}
      for word in string.gmatch(line.options, '[^,]+') do
        if word ~= '-' and string.sub(word, 1, #prefix) ~= prefix then
          words[#words + 1] = word
        end
      end
      if value then
        words[#words + 1] = prefix .. value
      end
      line.options = #words > 0 and table.concat(words, ',') or '-'
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
    local function run_parts(run)
      if #run <= 140000 then -- a longer text is no run
        return string.match(run, '^(.*) started=(%d+)$')
      end
    end
    local function attempt_of(run)
      return #run <= 140000 and string.match(run, '^%S+ (%S+)') or nil
    end
    local function has_accounts(kind)
      local space, _, _, _, _, before, sign = string.byte(kind, -8, -2)
      if sign == 61 and before ~= 114 then -- 'r', the end of for= and under=
        return space ~= 32 and #kind <= 20000 and string.find(kind, 'warm=', 1, true)
      end
      if #kind > 20000 or string.find(kind, 'for=', 1, true) then
        return #kind <= 20000
      end
      return string.find(kind, 'r=', 1, true)
        and (string.find(kind, 'under=', 1, true) or string.find(kind, 'warm=', 1, true))
    end
    local function add_queue(kind, pending, size)
      QUEUES[kind] = {
        pending = pending,
        before = size,
        count = size,
        entering = false,
        low = HIGHEST_ORDER,
        high = 0,
        left = HIGHEST_ORDER,
        touched = false,
        first = false,
      }
    end
    local function bad_kind(pending_prefix, kind)
      if QUEUES[kind] then
        return nil
      end
      local pending = pending_prefix .. kind
      local size = redis.pcall('ZCARD', pending)
      if type(size) ~= 'number' then
        return in_full().bad_type(pending, 'zset')
      end
      add_queue(kind, pending, size)
    end
    local function touch(kind)
      local queue = QUEUES[kind]
      if not queue.touched then
        TOUCHED[#TOUCHED + 1] = kind
        queue.touched = true
      end
      return queue
    end
    local function enter(kind, id, order, order_number)
      if APART then
        return
      end
      local queue = touch(kind)
      order_number = order_number or tonumber(order)
      local entering = queue.entering
      if entering then
        entering[#entering + 1] = order
        entering[#entering + 1] = id
      else
        queue.entering = {order, id}
      end
      if order_number < queue.low then
        queue.low = order_number
      end
      if order_number > queue.high then
        queue.high = order_number
      end
    end
    local function order_at(pending, rank)
      local order = tonumber(redis.call('ZRANGE', pending, rank, rank, 'WITHSCORES')[2])
      return order and order >= 0 and order <= HIGHEST_ORDER and math.floor(order) or 0
    end
    local function find_first(pending, low, high)
      while low < high do
        local middle = low + math.floor((high - low) / 2) -- low + high may have no exact number
        if redis.call('ZCOUNT', pending, '-inf', string.format('%d', middle)) > 0 then
          high = middle
        else
          low = middle + 1
        end
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
    local function to_outbox(id, state, why)
      OUTBOX[#OUTBOX + 1] = id .. ' ' .. state .. ' ' .. why
    end
    local function write_outbox(outbox)
      if #OUTBOX == 0 then
        return
      end
      write_all('LPUSH', outbox, OUTBOX)
      redis.call('LTRIM', outbox, 0, 9999)
    end
    local function ended_texts(ids)
      local texts = read_fields(KEY.ended_2, ids)
      for id, text in pairs(read_fields(KEY.ended_1, ids)) do
        texts[id] = text
      end
      for id, text in pairs(read_fields(KEY.ended, ids)) do
        texts[id] = text
      end
      return texts
    end
    local function load_extra(id)
      local key = KEY.extra .. id
      local values = redis.pcall('HMGET', key, unpack(RARE))
      if values.err then
        error(bad_type(key, 'hash').err, 0) -- the error names the key, which is not among KEYS
      end
      local extra = {}
      for i, value in ipairs(values) do
        extra[RARE[i]] = value or nil
      end
      return extra
    end
    local function complete_record(task)
      local line = parse_line(task.raw)
      task.line = line
      task.extra = line and line.mark == '+' and load_extra(task.id) or {}
      if task.run then
        local place, started = run_parts(task.run)
        task.place = place or task.run
        task.started = started
        task.attempt = attempt_of(task.run)
        task.state = started and 'running' or 'placed'
      elseif task.attempt then
        task.state = 'taken'
      else
        local is_dead_task = task.extra.ended_ms or redis.call('ZSCORE', KEY.dead, task.id)
        task.state = is_dead_task and 'dead' or 'pending'
      end
      task.counts = (task.run or task.attempt) and line and has_accounts(line.kind) and line.kind
      return task
    end
    local function ended_record(id, text)
      local state = string.match(text, '^%l+')
      return {id = id, state = FINAL[state] and state or 'failed', text = text}
    end
    local function load_tasks(ids)
      local lines = read_fields(KEY.tasks, ids)
      local owners = read_fields(KEY.taken, ids)
      local runs = read_fields(KEY.running, ids)
      local texts = ended_texts(ids)
      local records = {}
      for _, id in ipairs(ids) do
        local text = texts[id]
        local is_live = lines[id] or not text and (owners[id] or runs[id])
        if not records[id] and is_live then
          local task = {id = id, raw = lines[id], attempt = owners[id], run = runs[id]}
          records[id] = complete_record(task)
        elseif not records[id] and text then
          records[id] = ended_record(id, text)
        end
      end
      return records
    end
    local function bad_records()
      for _, name in ipairs({'running', 'taken', 'messages', 'ended', 'ended_1', 'ended_2'}) do
        local refusal = bad_type(KEY[name], 'hash')
        if refusal then
          return refusal
        end
      end
      return bad_type(KEY.dead, 'zset')
    end
    local function put_extra(task, ...)
      local key = KEY.extra .. task.id
      if task.line.mark ~= '+' then
        redis.call('DEL', key)
      end
      redis.call('HSET', key, ...)
      task.line.mark = '+'
    end
    local function sound_waiters(waiters)
      return #waiters < 8000 and waiters or '' -- add_waiter keeps about 4,000 bytes
    end
    local function without_waiter(waiters, scheduler)
      local padded = ' ' .. waiters .. ' '
      local from, to = string.find(padded, ' ' .. scheduler .. ' ', 1, true)
      if not from then
        return nil
      end
      local behind = string.sub(padded, to + 1)
      local _, number_behind = string.gsub(behind, ' ', '')
      return string.sub(string.sub(padded, 1, from) .. behind, 2, -2), number_behind
    end
    local function write_waiters(meta, waiters)
      if waiters == '' then
        redis.call('HDEL', meta, 'waiters')
      else
        redis.call('HSET', meta, 'waiters', waiters)
      end
    end
    local function remove_waiter(meta, waiters, scheduler)
      local remaining = without_waiter(sound_waiters(waiters), scheduler)
      if remaining then
        write_waiters(meta, remaining)
      end
    end
    local function wake_newest(channel, waiters, scheduler)
      local untried = sound_waiters(waiters)
      local listeners = 0
      local tries = 0
      while listeners == 0 and untried ~= '' and tries < 16 do
        local earlier, newest = string.match(untried, '^(.*) (%S+)$')
        newest = newest or untried
        if newest ~= scheduler then
          listeners = redis.call('SPUBLISH', channel .. ':' .. newest, 'wake')
        end
        untried = earlier or ''
        tries = tries + 1
      end
      return untried
    end
    local function stop_waiting(channel, meta, waiters, scheduler, waits)
      if waits == 'wake' then
        write_waiters(meta, wake_newest(channel, waiters, scheduler))
      else
        remove_waiter(meta, waiters, scheduler)
      end
    end
    local function leave_state(task, undone)
      if task.state == 'taken' then
        redis.call('HDEL', KEY.taken, task.id)
      end
      if task.run then
        redis.call('HDEL', KEY.running, task.id)
      end
      if task.counts then
        counting().leave_accounts(task.counts, {task.id}, undone)
        task.counts = nil
      end
    end
    local function write_end(task, state, now, why)
      local line = task.line and line_text(task.line) or task.raw or ''
      local text = table.concat({state .. ' ' .. now, line, task.run or '', why}, '\n')
      redis.call('HSET', KEY.ended, task.id, text)
      redis.call('HDEL', KEY.tasks, task.id)
      redis.call('HDEL', KEY.messages, task.id)
    end
    local function end_task(task, state, now, why, retention_s, is_unseen)
      local key = KEY.extra .. task.id
      local message = is_unseen and task.line and redis.call('HGET', KEY.messages, task.id)
      if message then
        put_extra(task, 'message', message)
      end
      write_end(task, state, now, why)
      leave_state(task)
      if task.line and task.line.mark == '+' then
        redis.call('HDEL', key, 'cancel', 'next', 'next_message')
        redis.call('EXPIRE', key, retention_s)
      elseif not task.line then
        redis.call('DEL', key)
      end
      task.state = state
      task.attempt = nil
      task.run = nil
    end
    local function end_unseen(task, state, now, why, retention_s)
      local attempt = task.attempt
      end_task(task, state, now, why, retention_s, true)
      to_outbox(task.id, state, why)
      local is_expired = why == 'expired'
      note_task(task, is_expired and why or state, not is_expired and why or nil, attempt, task.place)
    end
    local function is_number(text)
      if #text > 15 then
        return false
      end
      return (string.find(text, '^%-?%d+$') or string.find(text, '^%-?%d+%.%d+$')) ~= nil
    end
    local function sign_of(condition)
      local first, second = string.byte(condition, 1, 2)
      if first ~= 60 and first ~= 62 then -- '<' and '>'
        return nil
      end
      return string.sub(condition, 1, second == 61 and 2 or 1) -- '='
    end
    local function is_condition(text)
      local sign = sign_of(text)
      if sign then
        return is_number(string.sub(text, #sign + 1))
      end
      local values = string.match(text, '^!?(.*)$')
      if values == '*' then
        return true
      end
      if not string.find(values, '^[%w_./%%|-]+$') then
        return false
      end
      return not string.find('|' .. values .. '|', '||', 1, true)
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
    local function is_rare_word(word, of_needs)
      local name, amount = string.match(word, '^(%l[%l%d_.@]*)=%-?([%d.]+)$')
      if name then
        if not string.find(name, '^[%l%d_]*$') and not is_of_devices(name, of_needs) then
          return false
        end
        return is_part(amount) or #amount < 17 and string.find(amount, '^%d+$') ~= nil
      end
      local condition = of_needs and string.match(word, '^%a[%w_.-]*:(.+)$')
      return condition and is_condition(condition) or false
    end
    local function has_only_words(text, of_needs)
      if #text > 65536 or string.find(text, '[^ -~]') then
        return false
      end
      for word in string.gmatch(text, '%S+') do
        local amount = string.match(word, '^%l[%l%d_]*=%-?(%d+)$')
        if not (amount and #amount < 17) and not string.find(word, '^%a[%w_.-]*:[%w_./%%-]+$') then
          if not in_full().is_rare_word(word, of_needs) then
            return false
          end
        end
      end
      return true
    end
    local function are_needs(text)
      if NEEDED[text] == nil then
        NEEDED[text] = has_only_words(text, true)
      end
      return NEEDED[text]
    end
    local function is_sound_limit(word)
      local name, units = string.match(word, '^([^*]+)%*(%d+)$')
      local number = tonumber(units or 1)
      name = name or word
      return #name <= 128 and string.find(name, '^%w[%w_.:@+/-]*$') and number >= 1 and number <= 1000
    end
    local function is_sound_tenant(word)
      return #word <= 32 and string.find(word, '^[%l%d][%l%d_.-]*$')
    end
    local function are_words(text, pattern, doubled, most, is_sound)
      local mark = string.sub(doubled, 1, 1)
      local count = 0
      for word in string.gmatch(text, pattern) do
        count = count + 1
        if count > most or not is_sound(word) then
          return false
        end
      end
      return count > 0 and not string.find(mark .. text .. mark, doubled, 1, true)
    end
    local function are_accounts(kind)
      local _, tenant, limits = split_accounts(kind)
      return (not tenant or are_words(tenant, '[^/]+', '//', 3, is_sound_tenant))
        and (not limits or are_words(limits, '[^,]+', ',,', 8, is_sound_limit))
    end
    local function are_preferences(prefer)
      if #prefer > 8000 then
        return false
      end
      local rules = ',' .. prefer .. ','
      local key, behind = string.match(rules, ',warm=([^,]*)(.*)$')
      local is_key = not key or #key <= 128 and string.find(key, '^%w[%w_.:@+/-]*$')
      return string.find(prefer, '^[%w_.:=|!<>*/%%@,+-]+$')
        and not string.find(rules, ',,', 1, true)
        and is_key
        and not string.find(behind or '', ',warm=', 1, true)
    end
    local function flaw(line)
      if not line then
        return 'line'
      end
      local name, needs, strategy, prefer = split_kind(line.kind)
      if not string.find(needs or '', '^slots=%d') or not are_needs(needs) then
        return 'needs'
      end
      if not string.find(name or '', '^[!-~]+$') or #name > 255 then
        return 'name'
      end
      if strategy ~= '' and not STRATEGY[strategy] then
        return 'strategy'
      end
      if prefer and not are_preferences(prefer) then
        return 'preferences'
      end
      if has_accounts(line.kind) and not are_accounts(line.kind) then
        return 'accounts'
      end
    end
    local function is_dead(id)
      return redis.call('ZSCORE', KEY.dead, id)
    end
    local function find_due(limit, not_taken)
      local refusal
      DUE_IDS = redis.call('ZRANGEBYSCORE', KEY.later, '-inf', now_ms(), 'LIMIT', 0, limit)
      local texts = read_fields(KEY.tasks, DUE_IDS)
      for i, id in ipairs(DUE_IDS) do
        local line = parse_line(texts[id])
        if texts[id] and not line then
          not_taken[#not_taken + 1] = 0
          not_taken[#not_taken + 1] = id
        end
        refusal = refusal or line and bad_kind(KEY.pending, line.kind) or nil
        DUE_LINES[i] = line or false
      end
      return refusal
    end
    local function enter_due()
      local changed_lines = {}
      for i, id in ipairs(DUE_IDS) do
        local line = DUE_LINES[i]
        if line then
          enter(line.kind, id, line.order)
          if come_due(line) then
            changed_lines[#changed_lines + 1] = id
            changed_lines[#changed_lines + 1] = line_text(line)
          end
        end
      end
      return changed_lines
    end
    local function write_due(lines)
      write_all('ZREM', KEY.later, DUE_IDS)
      write_all('HSET', KEY.tasks, lines)
    end
    local function load_not_taken(not_taken, retention_s)
      local refusal = bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list')
      if refusal then
        return refusal
      end
      local ids = {}
      for i = 2, #not_taken, 2 do
        ids[#ids + 1] = not_taken[i]
      end
      RECORDS = load_tasks(ids)
      for _, task in pairs(RECORDS) do
        refusal = refusal or task.line and bad_kind(KEY.pending, task.line.kind) or nil
      end
      return refusal
    end
    local function end_or_return(task, retention_s)
      if not task or task.state ~= 'pending' then -- the task is in no queue any more
        return nil
      end
      local damage = flaw(task.line)
      if damage then
        local why = DAMAGED .. ': ' .. damage
        end_unseen(task, 'failed', now_ms(), why, retention_s)
        return why
      end
      if is_past(option(task.line, 'expires'), now_ms()) then
        end_unseen(task, 'cancelled', now_ms(), 'expired', retention_s)
      else
        enter(task.line.kind, task.id, task.line.order)
      end
    end
    local function end_not_taken(not_taken, given, retention_s)
      for i = 1, #not_taken, 2 do
        local id = not_taken[i + 1]
        local why = end_or_return(RECORDS[id], retention_s)
        for _, word in ipairs(why and {not_taken[i], id, '', why} or {}) do
          given[#given + 1] = word
        end
      end
      write_outbox(KEY.outbox)
    end
    MADE_IN_FULL = {bad_type = bad_type, end_not_taken = end_not_taken, enter_due = enter_due, find_due = find_due, find_first = find_first, is_dead = is_dead, is_rare_word = is_rare_word, load_not_taken = load_not_taken, order_at = order_at, stop_waiting = stop_waiting, too_long = too_long, too_many = too_many, write_due = write_due}
    return MADE_IN_FULL
  end
  return MADE_COUNTING
end
function in_full()
  counting()
  return in_full()
end
local math_huge, math_max, math_min, redis_call, redis_pcall, string_byte, string_find, string_format, string_gsub, string_match, string_sub = math.huge, math.max, math.min, redis.call, redis.pcall, string.byte, string.find, string.format, string.gsub, string.match, string.sub
local meta, kinds, changed, later, tasks, taken, running, pending_prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local refused
repeat -- refuse_call
  local verb, keys, argv = 'take', 8, 7 + 2 * count
  local has_gate = #KEYS == keys + 1 and string_sub(KEYS[#KEYS], -6) == '}:gate'
  if #ARGV == argv and (#KEYS == keys or has_gate) then
    refused = nil
    break
  end
  refused = redis.error_reply(string_format('PSARGS %s takes %d keys and %d arguments, not %d and %d',
    verb, keys, argv, #KEYS, #ARGV))
until true
if refused then return refused end
if #ARGV[1] > 255 or #ARGV[2] > 32 or #ARGV[3] > 32 or #ARGV[4] > 160 or #ARGV[5] > 32 or #ARGV[6] > 255 or #ARGV[7] > 64 then return in_full().too_long('take', 0, {'scheduler', 255, 'since', 32, 'most', 32, 'salt', 160, 'retention_s', 32, 'channel', 255, 'waits', 64}) end
if count > 1000 then return in_full().too_many('take', 1000) end
for row = 7, #ARGV - 1, 2 do
  if #ARGV[row + 1] > 2097152 or #ARGV[row + 2] > 32 then return in_full().too_long('take', row, {'kind', 2097152, 'limit', 32}) end
end

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



local COUNTED_KINDS = {} -- the kinds of the rows whose tasks count to accounts

-- check_call: check the arguments and read meta. Return the error reply; or nil, the schedulers
-- that wait, and how many takes were undone.

-- read_asked: read the accounts to which tasks of the rows count, and their ceilings.

-- choose_tasks: choose the first tasks of the kinds of all rows, and find the delayed tasks that
-- have come due. Writes nothing. Returns an error reply or nil.
-- undone: how many takes were undone; has_due: whether a delayed task may be due.

-- write_tasks: write the tasks that choose_tasks found: the due tasks, the taken tasks, and those
-- that cannot be taken.

-- next_due: return when the next delayed task is due, or ''.
local function next_due()
  return redis_call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
end

local check_call_1, check_call_2, check_call_3
repeat -- check_call
  local refusal = bad_number('most', ARGV[3], 1, 10000)
  if not refusal then
    local bad_since_1
    repeat -- bad_since
      local since = ARGV[2]
      if #since < 32 and (string_find(since, '^%d+$') or string_find(since, '^%d+/%d+$')) then
        bad_since_1 = nil
        break
      end
      bad_since_1 = redis.error_reply('PSARGS since is V or V/B')
    until true
    refusal = bad_since_1
  end
  if refusal then
    check_call_1, check_call_2, check_call_3 = refusal
    break
  end
  local total = 0
  local waiters, undone
  refusal, waiters, undone = bad_counts(meta, 'waiters', 'undone')
  for _ = 1, count do local row = 2 * _ + 5
    refusal = refusal or bad_number('limit', ARGV[row + 2], 0, 1000)
    local limit = tonumber(ARGV[row + 2]) or 0
    local queue = QUEUES[ARGV[row + 1]]
    if not refusal and not (queue and queue.limit >= limit) then
      local read_first_1
      repeat -- read_first
        local pending_prefix, kind, limit = pending_prefix, ARGV[row + 1], limit
        local pending = pending_prefix .. kind
        local ids = redis_pcall('ZRANGE', pending, 0, limit)
        if ids.err then
          read_first_1 = in_full().bad_type(pending, 'zset')
          break
        end
        do -- add_queue
          local kind, pending, size = kind, pending, #ids > limit and redis_call('ZCARD', pending) or #ids
          QUEUES[kind] = {
            pending = pending,
            before = size,
            count = size,
            entering = false,
            low = HIGHEST_ORDER,
            high = 0,
            left = HIGHEST_ORDER,
            touched = false,
            first = false,
          }
        end
        local queue = QUEUES[kind]
        queue.ids = ids
        queue.limit = limit
        queue.counts = has_accounts(kind)
      until true
      refusal = read_first_1
    end
    total = total + limit
  end
  if not refusal and total > 1000 then
    refusal = redis.error_reply('PSARGS take gives 1,000 tasks at most')
  end
  check_call_1, check_call_2, check_call_3 = refusal, waiters, undone
until true
local refusal, waiters, undone = check_call_1, check_call_2, check_call_3
if refusal then
  return refusal
end
local due_ms = next_due()
local has_due = due_ms ~= '' and is_past(due_ms, now_ms())
local choose_tasks_1
do -- choose_tasks
  local undone, has_due = undone, has_due
  local refusal = has_due and in_full().find_due(ARGV[3], NOT_TAKEN)
  local salt = ARGV[4]
  if undone and #undone < 16 and string_find(undone, '^%d+$') then
    salt = salt .. 'u' .. undone
  end
  do -- read_asked
    for _ = 1, count do local row = 2 * _ + 5
      if QUEUES[ARGV[row + 1]].counts then
        COUNTED_KINDS[#COUNTED_KINDS + 1] = ARGV[row + 1]
      end
    end
    if #COUNTED_KINDS > 0 then
      counting().read_accounts_of(COUNTED_KINDS)
    end
  end
  do -- read_candidates
    local tasks, taken, running = tasks, taken, running
    local ids = {}
    for _ = 1, count do local row = 2 * _ + 5
      local queue = QUEUES[ARGV[row + 1]]
      if queue.limit > 0 and not queue.from then
        queue.from = #ids
        if queue.from == 0 then
          ids = queue.ids
        else
          for i = 1, #queue.ids do
            ids[queue.from + i] = queue.ids[i]
          end
        end
      end
    end
    CANDIDATES = ids
    if #ids > 0 then
      LINES = redis_call('HMGET', tasks, unpack(ids))
      OWNERS = redis_call('HMGET', taken, unpack(ids))
      RUNS = redis_call('HMGET', running, unpack(ids))
    end
  end
  for number = 1, count do local row = 2 * number + 5
    repeat -- take_first
      local number, kind, limit, salt = number, ARGV[row + 1], tonumber(ARGV[row + 2]), salt
      local queue = QUEUES[kind]
      if queue.counts then
        limit = math_min(limit, counting().room_of(kind, math_max(1, limit)))
      end
      local size = math_min(limit, queue.count)
      if size == 0 or not queue.ids then
        break
      end
      queue.ids = false
      local from = queue.from
      LEAVING[kind] = size
      BEHIND[kind] = queue.count > size
        and string_match(LINES[from + size + 1] or '', '^%+?%d+@%d+ (%d+) ')
      do -- touch
        local kind = kind
        local queue = QUEUES[kind]
        if not queue.touched then
          TOUCHED[#TOUCHED + 1] = kind
          queue.touched = true
        end
      end
      local given = #GIVEN
      local attempts = #ATTEMPTS
      local first = attempts + 1
      for i = from + 1, from + size do
        local id = CANDIDATES[i]
        local line = LINES[i] or ''
        local is_elsewhere = OWNERS[i] or RUNS[i] or string_byte(line) == 43 and in_full().is_dead(id)
        local next_attempt_1, next_attempt_2
        repeat -- next_attempt
          local line, kind, is_elsewhere, salt = line, kind, is_elsewhere, salt
          local takes, life, ready, options, kind_of_line =
            string_match(line, '^%+?(%d+)@(%d+) %d+ (%d+) %d+ (%S+) (.*)$')
          if is_elsewhere or kind_of_line ~= kind or #takes > 9 or #life > 15 or #ready > 15 then
            next_attempt_1, next_attempt_2 = nil
            break
          end
          local attempt = (takes == '0' and '1' or string_format('%d', takes + 1)) .. '@' .. life .. salt
          if options == '-' then
            next_attempt_1, next_attempt_2 = attempt, ready
            break
          end
          if is_past(string_match(options .. ',', 'expires=(%d+),'), now_ms()) then
            next_attempt_1, next_attempt_2 = nil
            break
          end
          local avoided = string_match(options, 'last=([^,]+)')
          next_attempt_1, next_attempt_2 = attempt, avoided and ready .. ' ' .. avoided or ready
        until true
        local attempt, ready = next_attempt_1, next_attempt_2
        if attempt then
          ATTEMPTS[attempts + 1] = id
          ATTEMPTS[attempts + 2] = attempt
          attempts = attempts + 2
          GIVEN[given + 1] = number
          GIVEN[given + 2] = id
          GIVEN[given + 3] = attempt
          GIVEN[given + 4] = ready
          given = given + 4
        else
          NOT_TAKEN[#NOT_TAKEN + 1] = number
          NOT_TAKEN[#NOT_TAKEN + 1] = id
        end
      end
      if queue.counts then
        counting().count_taken(kind, ATTEMPTS, first)
      end
    until true
  end
  if #NOT_TAKEN > 0 and not refusal then
    refusal = in_full().load_not_taken(NOT_TAKEN, ARGV[5])
  end
  choose_tasks_1 = refusal
end
refusal = choose_tasks_1
if refusal then
  return refusal
end
do -- write_tasks
  local has_due = has_due
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
    redis_call('ZADD', changed, 'XX', 0, '') -- changes nothing, but a full server refuses the call
  end
  if has_due then
    in_full().write_due(due_lines)
  end
  for kind, size in pairs(LEAVING) do
    do -- take_out
      local kind, size, following = kind, size, BEHIND[kind]
      local queue = QUEUES[kind]
      queue.count = queue.count - redis_call('ZREMRANGEBYRANK', queue.pending, 0, size - 1)
      if queue.count == 0 then
        queue.first = math_huge
      else
        queue.first = tonumber(following) or in_full().order_at(queue.pending, 0)
      end
    end
  end
  write_all('HSET', taken, ATTEMPTS)
  if #NOT_TAKEN > 0 then
    in_full().end_not_taken(NOT_TAKEN, GIVEN, ARGV[5])
  end
end
do -- write_changes
  local meta, kinds, changed = meta, kinds, changed
  if next(ACCOUNTS) then
    counting().write_accounts()
  end
  local write_kinds_1
  repeat -- write_kinds
    local meta, kinds, changed = meta, kinds, changed
    if APART then
      write_kinds_1 = false
      break
    end
    local has_new_kind = false
    local lines = {}
    local ended = {}
    read_lines(kinds)
    announce(changed)
    do -- write_version
      local meta = meta
      local before = COUNTED.now or COUNTED.version
      COUNTED.now = math_max(before, LAST_VERSION)
      if LAST_VERSION > before then
        -- HINCRBY and not HSET: a client's login may call HINCRBY, which writes only numbers.
        redis_call('HINCRBY', meta, 'version', string_format('%d', LAST_VERSION - before))
      end
    end
    for _, kind in ipairs(TOUCHED) do
      local queue = QUEUES[kind] -- nil for an account
      if queue then
        do -- write_entering
          local queue = queue
          if queue.entering then
            queue.count = queue.count + write_all('ZADD', queue.pending, queue.entering)
            queue.entering = false
          end
        end
      end
      if queue and queue.count == 0 then
        ended[#ended + 1] = kind
      elseif queue then
        queue.line = kind_line(queue, queue.known)
        lines[#lines + 1] = kind
        lines[#lines + 1] = queue.line
        has_new_kind = has_new_kind or queue.before == 0
      end
    end
    write_all('HSET', kinds, lines)
    write_all('HDEL', kinds, ended)
    write_kinds_1 = has_new_kind
  until true
  local has_new_kind = write_kinds_1
end
local changes_since_1, changes_since_2, changes_since_3, changes_since_4
do -- changes_since
  local kinds, changed, since, limit = kinds, changed, ARGV[2], ARGV[3]
  local now = COUNTED.now
  local version, begun = string_match(since, '^(%d+)%f[%D]/?(%d*)$')
  version = tonumber(version)
  begun = tonumber(begun) or version
  local begins_anew = version == 0 or version > now or begun < COUNTED.floor
  if begins_anew then
    version = 0
    begun = now
  end
  local changes = {}
  local reached = now
  if version == COUNTED.version and #TOUCHED <= tonumber(limit) then
    local own_changes_1
    do -- own_changes
      local changes = {}
      for _, kind in ipairs(TOUCHED) do
        if QUEUES[kind] then
          changes[#changes + 1] = kind
          changes[#changes + 1] = QUEUES[kind].line or ''
        end
      end
      own_changes_1 = changes
    end
    changes = own_changes_1 -- since the copy's version only this call has changed a kind
  elseif version < now then
    local read_changes_1, read_changes_2
    repeat -- read_changes
      local kinds, changed, version, limit = kinds, changed, version, limit
      local after = string_format('(%d', version)
      local names = redis_call('ZRANGEBYSCORE', changed, after, '+inf', 'LIMIT', 0, limit)
      local lines
      do -- read_fields
        local any, fields = kinds, names
        local texts = {}
        for from = 0, #fields - 1, 1000 do
          local chunk = redis_call('HMGET', any, unpack(fields, from + 1, math_min(from + 1000, #fields)))
          for i, text in ipairs(chunk) do
            if text then -- a nil would take a place in the table
              texts[fields[from + i]] = text
            end
          end
        end
        lines = texts
      end
      local changes = {}
      local places -- of the names that begin with '='
      for _, kind in ipairs(names) do
        changes[#changes + 1] = kind
        changes[#changes + 1] = lines[kind] or ''
        if string_byte(kind) == 61 then -- '='
          places = places or {}
          places[#places + 1] = #changes - 1
        end
      end
      if places then
        counting().put_account_lines(changes, places)
      end
      if #names >= tonumber(limit) then
        read_changes_1, read_changes_2 = changes, tonumber(redis_call('ZSCORE', changed, names[#names]))
        break
      end
      read_changes_1, read_changes_2 = changes, COUNTED.now
    until true
    changes, reached = read_changes_1, read_changes_2
  end
  local copy_version = string_format('%d', reached)
  if begun > reached then
    copy_version = string_format('%d/%d', reached, begun)
  end
  changes_since_1, changes_since_2, changes_since_3, changes_since_4 = copy_version, begins_anew and 1 or 0, reached < now and 1 or 0, changes
end
local version, anew, more, changes = changes_since_1, changes_since_2, changes_since_3, changes_since_4
repeat -- note_waiting
  local channel, meta, waiters, scheduler, waits = ARGV[6], meta, waiters, ARGV[1], ARGV[7]
  if waits == 'wait' then
    repeat -- add_waiter
      local meta, waiters, scheduler = meta, waiters or '', scheduler
      local sound_waiters_1
      do -- sound_waiters
        local waiters = waiters
        sound_waiters_1 = #waiters < 8000 and waiters or '' -- add_waiter keeps about 4,000 bytes
      end
      waiters = sound_waiters_1
      local without_waiter_1, without_waiter_2
      repeat -- without_waiter
        local waiters, scheduler = waiters, scheduler
        local padded = ' ' .. waiters .. ' '
        local from, to = string_find(padded, ' ' .. scheduler .. ' ', 1, true)
        if not from then
          without_waiter_1, without_waiter_2 = nil
          break
        end
        local behind = string_sub(padded, to + 1)
        local _, number_behind = string_gsub(behind, ' ', '')
        without_waiter_1, without_waiter_2 = string_sub(string_sub(padded, 1, from) .. behind, 2, -2), number_behind
      until true
      local remaining, number_behind = without_waiter_1, without_waiter_2
      if remaining and number_behind < 16 then
        break
      end
      remaining = remaining or waiters
      local text = remaining == '' and scheduler or remaining .. ' ' .. scheduler
      if #text > 4000 then
        text = string_match(string_sub(text, -4000), ' (.*)$') or scheduler
      end
      redis_call('HSET', meta, 'waiters', text)
    until true
    break
  end
  local leaves = waits == 'wake' or waits == '' and string_find(waiters or '', scheduler, 1, true)
  if waiters and leaves then
    in_full().stop_waiting(channel, meta, waiters, scheduler, waits)
  end
until true
due_ms = has_due and next_due() or due_ms
if #COUNTED_KINDS > 0 then
  due_ms = counting().tell_accounts(changes, COUNTED_KINDS, due_ms)
end
return {version, now_ms(), due_ms, anew, more, changes, GIVEN}
