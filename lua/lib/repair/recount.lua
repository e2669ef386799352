-- Compare accounts with the tasks that count to them. A script that calls these functions has the
-- keys tasks, taken, running and accounts, and the prefix holders:.
--- @include kind/changing
local MANY = 5000 -- holders; so many are counted only if the line and their number differ

-- is_counted: return whether a task of a kind is a holder of each of its accounts, and the lines of
-- these accounts say how many holders there are.
local function is_counted(id, kind)
  for _, share in ipairs(shares_of(kind)) do
    read_accounts({share.name})
    check_holders(share.name)
    local since = redis.pcall('ZSCORE', KEY.holders .. share.name, id)
    if not since or type(since) == 'table' or not account_of(share.name).count then
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

-- judge_holders: add what these holders hold to `summary`, {held = {}, count = number}. Add those
-- that do not count to the account to `strays`.
local function judge_holders(name, summary, ids, strays)
  local lines = read_list(KEY.tasks, ids)
  local owners = read_list(KEY.taken, ids)
  local runs = read_list(KEY.running, ids)
  for i, id in ipairs(ids) do
    local line = (owners[i] or runs[i]) and parse_line(lines[i] or '')
    local asked = line and share_in(line.kind, name)
    if asked then
      summary.count = summary.count + 1
      add_amounts(summary, asked, 1)
    else
      strays[#strays + 1] = id
    end
  end
end

-- count_holders: return what the holders of an account hold, and the ids that do not count to it.
local function count_holders(name)
  local summary = {count = 0, held = {}, next = account_of(name).next}
  local strays = {}
  local ids = redis.pcall('ZRANGE', KEY.holders .. name, 0, -1)
  for from = 1, #ids, 1000 do
    judge_holders(name, summary, {unpack(ids, from, math.min(from + 999, #ids))}, strays)
  end
  return summary, strays
end

-- is_sound_account: return whether the line of an account and its holders agree; and nil, or what
-- the holders hold and the ids that are no holders.
local function is_sound_account(name)
  read_accounts({name})
  check_holders(name)
  local account = account_of(name)
  if account.count and account.count > MANY then
    return true
  end
  local summary, strays = count_holders(name)
  local is_same = account.count and #strays == 0 and account_text(account) == account_text(summary)
  return is_same, summary, strays
end

-- drop_unreadable: delete `accounts` if it is a key of another type.
local function drop_unreadable()
  if bad_type(KEY.accounts, 'hash') then
    redis.call('DEL', KEY.accounts)
  end
end

-- count_anew: make the line of an account anew from its holders, and remove those that are none.
local function count_anew(name, summary, strays)
  local holders = KEY.holders .. name
  if bad_type(holders, 'zset') then
    redis.call('DEL', holders)
  end
  write_all('ZREM', holders, strays)
  local account = touch_account(name)
  account.count = summary.count
  account.held = summary.held
  account.full = false
  HAS_ROOM = true
end

-- enter_missing: let a task that is taken, placed or running count to its accounts.
local function enter_missing(id, kind)
  for _, share in ipairs(shares_of(kind)) do
    local holders = KEY.holders .. share.name
    if bad_type(holders, 'zset') then
      redis.call('DEL', holders)
    end
    redis.call('ZADD', holders, 'NX', now_ms(), id)
    account_of(share.name).is_checked = false
    local is_sound, summary, strays = is_sound_account(share.name)
    if not is_sound then
      count_anew(share.name, summary, strays)
    end
  end
end
