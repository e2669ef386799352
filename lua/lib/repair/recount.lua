-- Compare accounts with the tasks that count to them. A script that calls these functions has the
-- keys tasks, taken, running and accounts, and the prefix holders:.
--- @include kind/changing
local MANY = 5000 -- holders; so many are counted only if the line and their number differ
local HELD -- what held_tasks returns, once it is read

-- is_holder: return whether a task is among the holders of an account, and the line of the account
-- says how many holders there are.
local function is_holder(id, name)
  read_accounts({name})
  check_holders(name)
  return account_of(name).count and is_listed(id, name)
end

-- is_counted: return whether a task of a kind is a holder of each of its accounts.
local function is_counted(id, kind)
  for _, share in ipairs(shares_of(kind)) do
    if not is_holder(id, share.name) then
      return false
    end
  end
  return true
end

-- share_in: return what a task of a kind holds of an account; nil if it does not count to it.
local function share_in(kind, name)
  for _, share in ipairs(has_accounts(kind) and shares_of(kind) or {}) do
    if share.name == name then
      return share.asked
    end
  end
end

-- judge_holders: add what these holders hold to `summary`, {held = {}, count = number}. Return
-- whether each counts to the account. has_lost_line: repair_task makes a holder's line anew first.
local function judge_holders(name, summary, ids)
  local lines = read_list(KEY.tasks, ids)
  local owners = read_list(KEY.taken, ids)
  local runs = read_list(KEY.running, ids)
  for i in ipairs(ids) do
    local line = (owners[i] or runs[i]) and parse_line(lines[i] or '')
    local asked = line and share_in(line.kind, name)
    if not asked then
      account_of(name).has_lost_line = line == nil
      return false
    end
    summary.count = summary.count + 1
    add_amounts(summary, asked, 1)
  end
  return true
end

-- is_sound_account: return whether the line of an account and its holders agree, and every holder
-- counts to the account.
local function is_sound_account(name)
  read_accounts({name})
  check_holders(name)
  local account = account_of(name)
  if not account.count or account.count > MANY then
    return account.count ~= nil
  end
  local summary = {count = 0, held = {}, next = account.next}
  local ids = redis.pcall('ZRANGE', KEY.holders .. name, 0, -1)
  for from = 1, #ids, 1000 do
    if not judge_holders(name, summary, {unpack(ids, from, math.min(from + 999, #ids))}) then
      return false
    end
  end
  return account_text(account) == account_text(summary)
end

-- held_tasks: return {id -> kind} of the tasks with accounts that are taken, placed or running.
local function held_tasks()
  if HELD then
    return HELD
  end
  HELD = {}
  for _, ids in ipairs({redis.call('HKEYS', KEY.taken), redis.call('HKEYS', KEY.running)}) do
    for i, text in ipairs(read_list(KEY.tasks, ids)) do
      local line = text and has_accounts(text) and parse_line(text)
      HELD[ids[i]] = line and has_accounts(line.kind) and line.kind or nil
    end
  end
  return HELD
end

-- drop_unreadable: delete `accounts` if it is a key of another type.
local function drop_unreadable()
  if bad_type(KEY.accounts, 'hash') then
    redis.call('DEL', KEY.accounts)
  end
end

-- is_idle: return whether nothing counts to a sound account, and its rate is not used up any more.
-- Such a line stays from the last end of a task. A full account keeps its line.
local function is_idle(name)
  local account = account_of(name)
  local was_used = account.next and account.next <= tonumber(now_ms())
  return was_used and account.count == 0 and not account.full
end

-- use_up_rate: let an account whose line was damaged have no unit of its rate left, because nobody
-- knows how many it has.
local function use_up_rate(name, account)
  read_ceilings({name})
  if account.interval then
    account.next = tonumber(now_ms()) + account.burst * account.interval
  end
end

-- count_anew: make the holders and the line of an account anew from all tasks of the shard. Its
-- holders do not tell: an account that has lost some of them would have room for as many tasks.
local function count_anew(name)
  local holders = KEY.holders .. name
  local account = touch_account(name)
  if not account.count then
    use_up_rate(name, account)
  end
  account.count = 0
  account.held = {}
  account.full = false
  account.is_doubtful = false
  local entries = {} -- (ms, id)*
  for id, kind in pairs(held_tasks()) do
    local asked = share_in(kind, name)
    if asked then
      local since = redis.pcall('ZSCORE', holders, id)
      account.count = account.count + 1
      add_amounts(account, asked, 1)
      entries[#entries + 1] = type(since) == 'string' and since or now_ms()
      entries[#entries + 1] = id
    end
  end
  redis.call('DEL', holders)
  write_all('ZADD', holders, entries)
  HAS_ROOM = true
end

-- repair_account: repair an account of which is_sound_account says `word`. Return the word of the
-- reply of recount.
local function repair_account(name, word)
  word = account_of(name).has_lost_line and 'sound' or word
  if word == 'counted' then
    count_anew(name)
  elseif is_idle(name) then
    touch_account(name)
    return 'idle'
  end
  return word
end

-- enter_missing: let a task that is taken, placed or running count to its accounts.
local function enter_missing(id, kind)
  for _, share in ipairs(shares_of(kind)) do
    if not is_holder(id, share.name) then
      count_anew(share.name)
    end
  end
end
