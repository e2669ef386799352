-- Forget kinds of which no task waits any more, and accounts that nothing counts to. The leader
-- calls the script that does it, so that a client's login needs no right to delete kinds.
--- @include call/batch

-- is_crowded: return whether `changed` has 10,000 entries more than twice the kinds that wait,
-- and the accounts.
local function is_crowded(kinds, changed)
  local lines = redis.call('HLEN', kinds)
  local size = redis.call('ZCARD', changed)
  if size <= 2 * lines + 10000 then
    return false
  end
  local accounts_size = redis.pcall('HLEN', KEY.accounts)
  return size > 2 * (lines + (tonumber(accounts_size) or 0)) + 10000
end

-- sweep: if `changed` is crowded, remove kinds and accounts without a line, the oldest of the next
-- 1,000 first, and raise `floor` of meta to the version of the last kind looked at. A scheduler
-- whose copy is older than `floor` reads all kinds anew. Each call begins at `floor`, so no kind is
-- looked at twice.
local function sweep(meta, kinds, changed)
  if not is_crowded(kinds, changed) then
    return
  end
  local after = string.format('(%d', COUNTED.floor)
  local oldest =
    redis.call('ZRANGEBYSCORE', changed, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  local names = {}
  for i = 1, #oldest, 2 do
    names[#names + 1] = oldest[i]
  end
  local lines = read_fields(kinds, names)
  for _, name in ipairs(names) do
    local account = string.match(name, '^=(%S+)$')
    lines[name] = lines[name] or account and redis.pcall('HEXISTS', KEY.accounts, account) == 1
  end
  local ended = {}
  for _, kind in ipairs(names) do
    if not lines[kind] then
      ended[#ended + 1] = kind
    end
  end
  write_all('ZREM', changed, ended)
  if #oldest > 0 then
    COUNTED.floor = tonumber(oldest[#oldest])
    redis.call('HSET', meta, 'floor', oldest[#oldest])
  end
end
