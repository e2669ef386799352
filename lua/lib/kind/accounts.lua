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
--- @include call/batch
--- @include call/clock
--- @include kind/account_line
--- @include kind/shares
--- @include kind/waiting
local ACCOUNTS = {} -- name -> account, a table with the fields below
local CHANGED_ACCOUNTS = {} -- the accounts that this call changes
local ARE_READABLE = true -- false if `accounts` is a key of another type

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

-- read_accounts: read the lines of these accounts, as far as this call has not read them. In a key
-- of another type every line is damaged.
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
      parse_account(unread[i], ACCOUNTS[unread[i]], lines.err and '' or lines[i - from + 1])
    end
  end
end

-- touch_account: let write_changes write an account; return the account.
local function touch_account(name)
  local account = account_of(name)
  if not account.is_touched then
    account.is_touched = true
    CHANGED_ACCOUNTS[#CHANGED_ACCOUNTS + 1] = name
  end
  return account
end

-- leave_accounts: take tasks of a kind out of their accounts. ids: a list; undone: whether their
-- takes are undone, so that a rate gets their units back.
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
