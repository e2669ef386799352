-- The lines of `kinds`, 'COUNT FIRST LAST[ WHY]': how many tasks of a kind wait, the order of the first, an upper bound of the
-- order of the last, and why they wait, as a scheduler wrote it. Needs lib/kinds.lua.
--- @include kinds

-- parse_kind: return the count, the order of the first and of the last, and the rest: '' or ' WHY'; nil for any other text.
local function parse_kind(line)
  local count, first, last, why = string.match(line or '', '^([1-9]%d*) (%d+) (%d+)(.*)$')
  if not count or #count > 15 or #first > 15 or #last > 15 or not string.find(why .. ' ', '^ ') then return nil end
  return tonumber(count), tonumber(first), tonumber(last), why
end

-- find_first: return the smallest order in a queue, from low to high. It counts and does not read, because logins that may
-- cancel a task may not list the ids of others.
local function find_first(pending, low, high)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZCOUNT', pending, '-inf', string.format('%.0f', middle)) > 0 then high = middle else low = middle + 1 end
  end
  return low
end

-- kind_line: return the line of a queue as it is now, from the line before. The first is looked for if it may have left.
local function kind_line(queue, before)
  local count, first, last, why = parse_kind(before)
  if queue.before == 0 then
    first, last = queue.low, queue.high
  elseif not count then
    first, last = queue.first or find_first(queue.pending, 0, 999999999999999), queue.last or 999999999999999
  elseif not queue.first and queue.left <= first then
    first = find_first(queue.pending, math.min(first, queue.low), math.max(last, queue.high))
  end
  first = queue.first or math.min(first, queue.low)
  return string.format('%.0f %.0f %.0f%s', queue.count, first, math.max(first, last, queue.high), why or '')
end

-- sweep: forget ended kinds, the oldest first, when there are more than others that are worth their memory. A reader whose
-- copy is older than `floor` reads everything anew. What is below `floor` and not forgotten has not changed since, so that
-- nothing is looked at twice.
local function sweep(meta, kinds, changed)
  if redis.call('ZCARD', changed) <= 2 * redis.call('HLEN', kinds) + 10000 then return end
  local floor = redis.call('HMGET', meta, 'floor')[1] or '0'
  local oldest = redis.call('ZRANGEBYSCORE', changed, '(' .. floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  local names, ended = {}, {}
  for i = 1, #oldest, 2 do names[#names + 1] = oldest[i] end
  local lines = read_fields(kinds, names)
  for _, kind in ipairs(names) do
    if not lines[kind] then ended[#ended + 1] = kind end
  end
  write_all('ZREM', changed, ended)
  if #oldest > 0 then redis.call('HSET', meta, 'floor', oldest[#oldest]) end
end

-- write_kinds: write the queues and lines that changed, each with a version of its own. Return whether tasks wait of a kind of
-- which none waited before: those who know of no such task are to hear of it.
local function write_kinds(meta, kinds, changed)
  if #TOUCHED == 0 then return false end
  local version = redis.call('HINCRBY', meta, 'version', #TOUCHED)
  local before, began, lines, ended, versions = read_fields(kinds, TOUCHED), false, {}, {}, {}
  for i, kind in ipairs(TOUCHED) do
    local queue = QUEUES[kind]
    fill(queue)
    if queue.count == 0 then
      ended[#ended + 1] = kind
    else
      lines[#lines + 1], lines[#lines + 2] = kind, kind_line(queue, before[kind])
      began = began or queue.before == 0
    end
    versions[#versions + 1], versions[#versions + 2] = version - #TOUCHED + i, kind
  end
  write_all('HSET', kinds, lines)
  write_all('HDEL', kinds, ended)
  write_all('ZADD', changed, versions)
  if math.floor(version / 100) > math.floor((version - #TOUCHED) / 100) then sweep(meta, kinds, changed) end
  return began
end
