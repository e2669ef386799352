-- Choose the tasks that a take gives to its scheduler, as many of a kind as its accounts have room
-- for.
--- @include kind/changing
--- @include task/line
--- @include task/not_taken
local GIVEN = {} -- the tasks of the reply: {row, id, attempt, ready_ms, ...}
local ATTEMPTS = {} -- {id, attempt, ...} of the tasks that this call gives
local NOT_TAKEN = {} -- {row, id, ...} of tasks that nobody can take; see task/not_taken
local LEAVING = {} -- kind -> how many tasks leave its queue
local BEHIND = {} -- kind -> the order of the first task that stays, nil if it is not known

-- enter_holders: enter tasks among the holders of an account. If that is a key of another type, the
-- line becomes doubtful, and the leader counts anew.
local function enter_holders(name, account)
  local entering = account.entering
  for from = 1, #entering, 1000 do
    local to = math.min(from + 999, #entering)
    local added = redis.pcall('ZADD', KEY.holders .. name, unpack(entering, from, to))
    if type(added) == 'table' then
      account.count = nil
      account.is_doubtful = true
    end
  end
end

-- write_holders: write the tasks that count_taken entered among the holders of their accounts, and
-- which accounts want an allotment.
local function write_holders()
  list_wanting()
  for _, name in ipairs(list_accounts()) do
    enter_holders(name, ACCOUNTS[name])
  end
end

-- take_first: choose the first tasks of a kind, `limit` at most: put them into GIVEN and ATTEMPTS,
-- or into NOT_TAKEN. A limit of 0 only marks accounts that have no room for a task. number: the row
-- of the kind in this call; tasks, taken, running: the keys.
local function take_first(number, kind, limit, salt, tasks, taken, running)
  local counts = has_accounts(kind)
  if counts then
    limit = math.min(tonumber(limit), counting().room_of(kind, math.max(1, tonumber(limit))))
  end
  local ids, id_behind = first_of(kind, limit)
  local size = #ids
  if size == 0 then
    return
  end
  ids[size + 1] = id_behind
  local lines = redis.call('HMGET', tasks, unpack(ids))
  local owners = redis.call('HMGET', taken, unpack(ids))
  local runs = redis.call('HMGET', running, unpack(ids))
  LEAVING[kind] = size
  BEHIND[kind] = id_behind and string.match(lines[size + 1] or '', '^%+?%d+@%d+ (%d+) ')
  touch(kind)
  local given = #GIVEN
  local attempts = #ATTEMPTS
  local first = attempts + 1
  for i = 1, size do
    local id = ids[i]
    local line = lines[i] or ''
    local is_elsewhere = owners[i] or runs[i] or string.byte(line) == 43 and in_full().is_dead(id)
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
  if counts then
    counting().count_taken(kind, ATTEMPTS, first)
  end
end
