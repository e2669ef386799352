-- The lines of `kinds`, 'COUNT FIRST LAST[ WHY]': how many tasks of a kind wait, the order of the
-- first task, an upper bound of the order of the last task, and why the tasks wait, as a scheduler
-- wrote.
--- @include kind/waiting

-- parse_kind: return the count, the order of the first and of the last, and '' or ' WHY'; nil for
-- any other text.
local function parse_kind(line)
  local size, first, last, why = string.match(line or '', '^([1-9]%d*) (%d+) (%d+)(.*)$')
  if not size or #size > 15 or #first > 16 or #last > 16 then
    return nil
  end
  if why ~= '' and string.byte(why) ~= 32 then -- ' '
    return nil
  end
  return tonumber(size), tonumber(first), tonumber(last), why
end

-- find_first: return the smallest order in a queue, from low to high. Counts and does not read:
-- logins that may cancel a task may not list the ids of other tasks.
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

-- kind_line: return the new line of a kind from its queue (lib/kind/waiting.lua) and its old line.
-- Searches the key of the queue for the first task if the old first task may have left.
local function kind_line(queue, line_before)
  local size, first, last, why = parse_kind(line_before)
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
