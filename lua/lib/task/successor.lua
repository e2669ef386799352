-- The successor of a task: the work that follows under the same id once its running attempt has
-- ended. extra:ID has it as `next`, 'PRIORITY DUE_MS OPTIONS KIND' with '-' for a missing word, and
-- `next_message`. OPTIONS has `order` if the successor has an order of its own.
--- @include task/line
--- @include task/order

-- parse_next: return the fields of a successor as a table; nil for any other text.
local function parse_next(text)
  local pattern = '^([%d-]) (%S+) (%S+) (%S+ slots=%d.*)$'
  local priority, due, options, kind = string.match(text or '', pattern)
  if not priority then
    return nil
  end
  return {
    priority = tonumber(priority),
    due = string.match(due, '^%d+$'),
    options = options,
    kind = kind,
  }
end

-- others_published: return whether the successor in this text was published by another process than
-- the task's own run.
local function others_published(text)
  local successor = parse_next(text)
  return successor and option(successor, 'pub') ~= nil
end

-- become_next: turn a task into its successor, and forget the setbacks of the earlier run. Return
-- when (ms) the successor is due, nil for at once, and set `renewed` of the task. A task without a
-- successor, or with a damaged successor, stays as it was.
local function become_next(task)
  local line = task.line
  local successor = parse_next(task.extra.next)
  local key = KEY.extra .. task.id
  set_option(line, 'starts', nil)
  local message = successor and redis.call('HGET', key, 'next_message')
  if line.mark == '+' then
    redis.call('HDEL', key, 'next', 'next_message', 'why')
  end
  task.extra.next = nil
  if not message then
    return nil
  end
  redis.call('HSET', KEY.messages, task.id, message)
  task.renewed = true
  local publication = option(successor, 'pub') or option(line, 'pub')
  line.kind = successor.kind
  line.options = successor.options
  set_option(line, 'pub', publication)
  set_option(line, 'order', nil)
  if successor.priority then
    local order = option(successor, 'order') or line.order
    line.order = with_priority(order, successor.priority)
  end
  return successor.due
end
