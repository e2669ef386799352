-- Where tasks wait: by kind, in `pending:KIND`, by their order. `kinds` has a line for each kind of
-- which tasks wait, `changed` the version at which each line changed last, also of a kind that has
-- ended. A script looks at the kinds that it may change before its first write (bad_kind), says
-- what enters and leaves, and writes the lines last. parsync_redis/model/kind.py
--- @include call/batch
--- @include call/hash_numbers
local STRATEGY = {latency = true, quality = true, adaptive = true}
local QUEUES = {} -- kind -> its queue, as this call read the queue and changes it
local TOUCHED = {} -- the kinds that change, in the order of their first change
local APART = false -- the index is damaged: tasks go back to no index, see repair_task

-- The fields of a queue:
--   pending: the key
--   before, count: how many tasks waited before the call, and how many wait now
--   entering: {order, id, ...} of the tasks to write, or false
--   low, high: the lowest and the highest order that enters
--   left: the lowest order that has left
--   first, last: the orders of the first and the last task, if the call knows them
--   known, line: the line before the call, and the line now

-- bad_kind: look at the queue of a kind; return the error reply for a key of another type, or nil.
local function bad_kind(pending_prefix, kind)
  if QUEUES[kind] then
    return nil
  end
  local pending = pending_prefix .. kind
  local size = redis.pcall('ZCARD', pending)
  if type(size) ~= 'number' then
    return in_full().bad_type(pending, 'zset')
  end
  QUEUES[kind] = {
    pending = pending,
    before = size,
    count = size,
    entering = false,
    low = 1e15,
    high = 0,
    left = 1e15,
  }
end

-- touch: note that a kind changes; return its queue.
local function touch(kind)
  local queue = QUEUES[kind]
  if not queue.touched then
    TOUCHED[#TOUCHED + 1] = kind
    queue.touched = true
  end
  return queue
end

-- enter: let a task wait. order: as text; order_number: the same as a number, if the caller has it.
local function enter(kind, id, order, order_number)
  if APART then
    return
  end
  local queue = touch(kind)
  order_number = order_number or tonumber(order)
  local entering = queue.entering
  if entering then
    entering[#entering + 1] = order
    entering[#entering + 1] = id
  else
    queue.entering = {order, id}
  end
  if order_number < queue.low then
    queue.low = order_number
  end
  if order_number > queue.high then
    queue.high = order_number
  end
end

-- write_entering: write the tasks that enter a queue.
local function write_entering(queue)
  if queue.entering then
    queue.count = queue.count + write_all('ZADD', queue.pending, queue.entering)
    queue.entering = false
  end
end

-- leave: take a task out of the queue of a kind, if the task waits there.
local function leave(kind, id, order)
  if APART or redis.call('ZREM', QUEUES[kind].pending, id) == 0 then
    return
  end
  local queue = touch(kind)
  queue.count = queue.count - 1
  queue.left = math.min(queue.left, tonumber(order))
end

-- order_at: return the order of the task at a rank of a queue, 0 for an order that no script
-- writes.
local function order_at(pending, rank)
  local order = tonumber(redis.call('ZRANGE', pending, rank, rank, 'WITHSCORES')[2])
  return order and order >= 0 and order < 1e15 and math.floor(order) or 0
end

-- first_of: return the ids of the first tasks of a kind, and the id of the task behind them.
-- Returns no ids when the call asks for the kind again. Writes nothing.
local function first_of(kind, limit)
  local queue = QUEUES[kind]
  if queue.count == 0 or tonumber(limit) == 0 or queue.asked then
    return {}
  end
  queue.asked = true
  local ids = redis.call('ZRANGE', queue.pending, 0, limit)
  return ids, #ids > tonumber(limit) and table.remove(ids) or nil
end

-- take_out: take the first tasks of a kind out of its queue. following: the order of the task
-- behind them.
local function take_out(kind, size, following)
  local queue = QUEUES[kind]
  queue.count = queue.count - redis.call('ZREMRANGEBYRANK', queue.pending, 0, size - 1)
  if queue.count == 0 then
    queue.first = math.huge
  else
    queue.first = tonumber(following) or in_full().order_at(queue.pending, 0)
  end
end
