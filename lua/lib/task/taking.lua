-- Choose the tasks that a take gives to its scheduler, as many of a kind as its accounts have room
-- for.
--- @include kind/changing
--- @include task/line
--- @include task/not_taken
local GIVEN = {} -- the tasks of the reply: {row, id, attempt, ready_ms, ...}
local ATTEMPTS = {} -- {id, attempt, ...} of the tasks that this call gives
local NOT_TAKEN = {} -- {row, id, ...} of tasks that nobody can take; see task/not_taken
local LEAVING = {} -- kind -> how many tasks leave its queue
local CANDIDATES -- the ids of the first tasks of the kinds of all rows
local LINES, OWNERS, RUNS -- what `tasks`, `taken` and `running` have of them
local BEHIND = {} -- kind -> the order of the first task that stays, nil if it is not known

-- count_taken: let taken tasks of a kind count to their accounts. ids: {id, any, ...}, from place
-- `first` on.
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

-- enter_holders: enter tasks among the holders of an account. If that is a key of another type, the
-- line becomes doubtful, and the leader counts anew. entries: {ms, id, ...}
local function enter_holders(name, account, entries)
  for from = 1, #entries, 1000 do
    local to = math.min(from + 999, #entries)
    local added = redis.pcall('ZADD', KEY.holders .. name, unpack(entries, from, to))
    if type(added) == 'table' then
      account.count = nil
      account.is_doubtful = true
    end
  end
end

-- join: return the values of lists as one list.
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

-- write_holders: write the tasks that count_taken entered among the holders of their accounts, and
-- which accounts want an allotment.
local function write_holders()
  if HAS_DIVIDED then
    list_wanting()
  end
  for i = 1, #CHANGED_ACCOUNTS do
    local name = CHANGED_ACCOUNTS[i]
    local account = ACCOUNTS[name]
    if account.entering then
      enter_holders(name, account, join(account.entering))
    end
  end
end

-- read_candidates: read the first tasks of the kinds of all rows: with one command each for the
-- kinds together. tasks, taken, running: the keys.
local function read_candidates(tasks, taken, running)
  local ids = {}
  for _, row in rows() do
    local queue = QUEUES[row.kind]
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
    LINES = redis.call('HMGET', tasks, unpack(ids))
    OWNERS = redis.call('HMGET', taken, unpack(ids))
    RUNS = redis.call('HMGET', running, unpack(ids))
  end
end

-- take_first: choose the first tasks of a kind, `limit` at most: put them into GIVEN and ATTEMPTS,
-- or into NOT_TAKEN. A limit of 0 only marks accounts that have no room for a task. The second time
-- that a call asks for a kind it chooses none. number: the row of the kind in this call.
local function take_first(number, kind, limit, salt)
  local queue = QUEUES[kind]
  if queue.counts then
    limit = math.min(limit, counting().room_of(kind, math.max(1, limit)))
  end
  local size = math.min(limit, queue.count)
  if size == 0 or not queue.ids then
    return
  end
  queue.ids = false
  local from = queue.from
  LEAVING[kind] = size
  BEHIND[kind] = queue.count > size
    and string.match(LINES[from + size + 1] or '', '^%+?%d+@%d+ (%d+) ')
  touch(kind)
  local given = #GIVEN
  local attempts = #ATTEMPTS
  local first = attempts + 1
  for i = from + 1, from + size do
    local id = CANDIDATES[i]
    local line = LINES[i] or ''
    local is_elsewhere = OWNERS[i] or RUNS[i] or string.byte(line) == 43 and in_full().is_dead(id)
    local attempt, ready = next_attempt(line, kind, is_elsewhere, salt)
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
end
