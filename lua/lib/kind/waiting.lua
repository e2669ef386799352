-- Where tasks wait: by kind, in `pending:KIND`, by their order. `kinds` has a line for each kind of which tasks wait, `changed`
-- the version at which each line changed last, that of an ended kind as well. A script looks at the kinds that it may change
-- before its first write (bad_kind), says what enters and leaves, and writes the lines last. parsync_redis/model/kind.py
--- @include call/batch
--- @include call/hash_numbers
local STRATEGY = {latency = true, quality = true, adaptive = true}
local QUEUES, TOUCHED = {}, {} -- kind -> its queue as this call found and changes it; the kinds that change, in their turn
local APART = false -- the index is damaged: what would wait stays in no index, until the leader lets it (repair_task)

-- bad_kind: look at the queue of a kind; return the error reply for a key of another type, or nil.
local function bad_kind(pending_prefix, kind)
  if QUEUES[kind] then return nil end
  local pending = pending_prefix .. kind
  local size = redis.pcall('ZCARD', pending)
  if type(size) ~= 'number' then return in_full().bad_type(pending, 'zset') end
  QUEUES[kind] = {pending = pending, before = size, count = size, entering = false, low = 1e15, high = 0, left = 1e15}
end

local function touch(kind)
  local queue = QUEUES[kind]
  if not queue.touched then TOUCHED[#TOUCHED + 1], queue.touched = kind, true end
  return queue
end

-- enter: let a task wait; `order` as text, and as a number if the caller has it.
local function enter(kind, id, order, at)
  if APART then return end
  local queue = touch(kind)
  at = at or tonumber(order)
  local entering = queue.entering
  if entering then
    entering[#entering + 1], entering[#entering + 2] = order, id
  else
    queue.entering = {order, id}
  end
  if at < queue.low then queue.low = at end
  if at > queue.high then queue.high = at end
end

-- fill: write the tasks that enter.
local function fill(queue)
  local pending, entering = queue.pending, queue.entering
  if entering then queue.count, queue.entering = queue.count + write_all('ZADD', pending, entering), false end
end

-- leave: take a task out, if it waits there.
local function leave(kind, id, order)
  if APART then return end
  local pending = QUEUES[kind].pending
  if redis.call('ZREM', pending, id) == 0 then return end
  local queue = touch(kind)
  queue.count, queue.left = queue.count - 1, math.min(queue.left, tonumber(order))
end

-- order_at: return the order of the task at a rank of a queue, 0 for one that no script has written.
local function order_at(pending, rank)
  local order = tonumber(redis.call('ZRANGE', pending, rank, rank, 'WITHSCORES')[2])
  return order and order >= 0 and order < 1e15 and math.floor(order) or 0
end

-- first_of: return the ids of the first tasks of a kind, once in a call, and of the one behind them. It writes nothing.
local function first_of(kind, limit)
  local queue = QUEUES[kind]
  if queue.count == 0 or tonumber(limit) == 0 or queue.asked then return {} end
  queue.asked = true
  local ids = redis.call('ZRANGE', queue.pending, 0, limit)
  return ids, #ids > tonumber(limit) and table.remove(ids) or nil
end

-- take_out: take the first tasks of a kind out of its queue; `following` is the order of the one behind them.
local function take_out(kind, size, following)
  local queue = QUEUES[kind]
  local pending = queue.pending
  queue.count = queue.count - redis.call('ZREMRANGEBYRANK', pending, 0, size - 1)
  queue.first = queue.count == 0 and math.huge or tonumber(following) or in_full().order_at(pending, 0)
end
