-- The queues of waiting tasks: `pending:KIND` has the ids of the tasks of a kind, by their order
-- (priority, then age). `kinds` has a line for each kind of which tasks wait. `changed` has the
-- version at which each line changed last, also of a kind of which no task waits any more. Before
-- its first write a script calls bad_kind for each kind that it may change. Then it calls enter and
-- leave for tasks. At its end it calls write_kinds (lib/kind/index.lua), which writes the lines.
-- parsync_redis/model/kind.py parses the lines.
--- @include call/batch
--- @include call/hash_numbers
--- @include task/line
local STRATEGY = {latency = true, quality = true, adaptive = true}
local QUEUES = {} -- kind -> its queue, a table with the fields below
local TOUCHED = {} -- the kinds, and '=ACCOUNT' (lib/kind/accounts.lua), that change, in that order
local APART = false -- true if the index of kinds is damaged: then tasks enter no queue
local HIGHEST_ORDER = 8999999999999999 -- see lib/task/order.lua

-- The fields of a queue. An order is a number; the task with the lowest order is taken first.
--   pending: the key
--   before, count: how many tasks waited before the call, and how many wait now
--   entering: {order, id, ...} of the tasks to write, or false
--   low, high: the lowest and the highest order that enters
--   left: the lowest order that has left
--   touched: whether the kind changes
--   first, last: the orders of the first and the last task, if the call knows them
--   ids, limit, counts: see read_first; ids is false once a take has chosen of them
--   from: the place of `ids` in the ids of all queues of the call
--   known, line: the line before the call (false for none, nil if it is not read), the line now

-- add_queue: add the queue of a kind, of which `size` tasks wait.
local function add_queue(kind, pending, size)
  QUEUES[kind] = {
    pending = pending,
    before = size,
    count = size,
    entering = false,
    low = HIGHEST_ORDER,
    high = 0,
    left = HIGHEST_ORDER,
    touched = false,
    first = false,
  }
end

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
  add_queue(kind, pending, size)
end

-- read_first: do as bad_kind does, for a take that wants `limit` tasks of a kind, a number. Let the
-- queue have `limit`, the ids of its first tasks, one more than `limit` if so many wait, and
-- whether the tasks may count to accounts.
local function read_first(pending_prefix, kind, limit)
  local pending = pending_prefix .. kind
  local ids = redis.pcall('ZRANGE', pending, 0, limit)
  if ids.err then
    return in_full().bad_type(pending, 'zset')
  end
  add_queue(kind, pending, #ids > limit and redis.call('ZCARD', pending) or #ids)
  local queue = QUEUES[kind]
  queue.ids = ids
  queue.limit = limit
  queue.counts = has_accounts(kind)
end

-- touch: note in TOUCHED that a kind changes; return the kind's queue.
local function touch(kind)
  local queue = QUEUES[kind]
  if not queue.touched then
    TOUCHED[#TOUCHED + 1] = kind
    queue.touched = true
  end
  return queue
end

-- enter: let a task wait in the queue of its kind; write_entering writes the task later.
-- order: the task's order as text; order_number: as a number, or nil.
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

-- write_entering: write the tasks for which `enter` was called into the key of their queue.
local function write_entering(queue)
  if queue.entering then
    queue.count = queue.count + write_all('ZADD', queue.pending, queue.entering)
    queue.entering = false
  end
end

-- leave: remove a task from the queue of a kind. Does nothing for a task that does not wait there.
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
  return order and order >= 0 and order <= HIGHEST_ORDER and math.floor(order) or 0
end

-- take_out: remove the first `size` tasks of a kind from its queue.
-- following: the order of the next task, nil if the caller does not know the order.
local function take_out(kind, size, following)
  local queue = QUEUES[kind]
  queue.count = queue.count - redis.call('ZREMRANGEBYRANK', queue.pending, 0, size - 1)
  if queue.count == 0 then
    queue.first = math.huge
  else
    queue.first = tonumber(following) or in_full().order_at(queue.pending, 0)
  end
end
