-- The lines of `kinds`, 'COUNT FIRST LAST[ WHY]': how many tasks of a kind wait, the order of the first, an upper bound of the
-- order of the last, and why they wait, as a scheduler wrote it.
--- @include kind/waiting

-- parse_kind: return the count, the order of the first and of the last, and the rest: '' or ' WHY'; nil for any other text.
local function parse_kind(line)
  local size, first, last, why = string.match(line or '', '^([1-9]%d*) (%d+) (%d+)(.*)$')
  if not size or #size > 15 or #first > 15 or #last > 15 or why ~= '' and string.byte(why) ~= 32 then return nil end
  return tonumber(size), tonumber(first), tonumber(last), why
end

-- find_first: return the smallest order in a queue, from low to high. It counts and does not read, because logins that may
-- cancel a task may not list the ids of others.
local function find_first(pending, low, high)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZCOUNT', pending, '-inf', string.format('%d', middle)) > 0 then high = middle else low = middle + 1 end
  end
  return low
end

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
