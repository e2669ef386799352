-- The order of a task: (9 - priority) * 9e14 + T. T is the time by which the task should start, in
-- hundredths of a ms since 2020. The task with the lowest order is taken first. An order has 16
-- digits at most and is below 2^53, so that Lua and a zset have each order exactly. T is a version
-- (kind/index.lua) that the submission gets for itself, plus an offset: the patience of 10 minutes,
-- or what the option `start` says. So tasks with the same offset start in the order in which they
-- were submitted. See parsync_redis/model/order.py.

-- base_of: return what the order of a task of this priority has beside the submission's version.
local function base_of(priority)
  return (9 - priority) * 9e14 - 157783680000000 + 60000000 -- 2020-01-01, the patience
end

-- shift_of: return how much later than by its patience a task should start. start: the option
-- `start`, an offset in ms; nil for a task without it.
local function shift_of(start)
  return start and start * 100 - 60000000 or 0
end

-- with_priority: return an order, as text, with another priority and the same T.
local function with_priority(order, priority)
  return string.format('%d', (9 - priority) * 9e14 + order % 9e14)
end
