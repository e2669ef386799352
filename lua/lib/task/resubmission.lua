-- Submissions with options, and submissions under the id of a task that exists.
--- @include kind/shares
--- @include kind/index
--- @include task/transitions
--- @include task/submission
local DELAYS = {} -- {due_ms, id, ...}: what goes to `later`
local EXPIRIES = {} -- {expires_ms, id, ...}: what goes to `expires`
local RENEWED = {} -- ids that begin a new life

-- kept_options: return the options that the line of a task keeps, '-' for none.
local function kept_options(options, expires)
  local words = {}
  if expires then
    words[1] = 'expires=' .. expires
  end
  if options.max then
    words[#words + 1] = 'max=' .. options.max
  end
  if options.any then
    words[#words + 1] = 'any=1'
  end
  if options.pub then
    words[#words + 1] = 'pub=' .. options.pub
  end
  if options.order then
    words[#words + 1] = 'order=' .. options.order
  end
  return #words > 0 and table.concat(words, ',') or '-'
end

-- add_expiry: let a task expire `expiry` ms from now; '' or nil for never. Return the moment, or
-- nil.
local function add_expiry(id, expiry)
  local expires_ms = after_ms(now_ms(), expiry or '')
  if expires_ms then
    EXPIRIES[#EXPIRIES + 1] = expires_ms
    EXPIRIES[#EXPIRIES + 1] = id
  end
  return expires_ms
end

-- timing: return when a new task is due (ms), nil for at once; the options that its line keeps; and
-- its order. is_known: the id had a task before; order: that of a task without the option `start`.
local function timing(id, options, is_known, order)
  local due = after_ms(now_ms(), options.delay or '')
  if due then
    DELAYS[#DELAYS + 1] = due
    DELAYS[#DELAYS + 1] = id
  end
  local expires_ms = add_expiry(id, options.expiry)
  if is_known then
    RENEWED[#RENEWED + 1] = id
  end
  return due, kept_options(options, expires_ms), order + shift_of(options.start)
end

-- is_new_publish: return whether `pub` tells a publish from those of a task and of its successor.
-- line: the fields of the task's line, nil if they are lost.
local function is_new_publish(task, line, pub)
  if not pub or line and pub == option(line, 'pub') then
    return false
  end
  local successor = task.extra and parse_next(task.extra.next)
  return not (successor and pub == option(successor, 'pub'))
end

-- judge_resubmission: return the word for a submission under the id of a task that exists.
--   exists: nothing happens; next: the submission is the successor of the task
--   stale: the attempt that submits has ended
--   nil: the task has ended, and the submission begins a new life of the id
local function judge_resubmission(task, options)
  local text = task.text
  local line = task.line or text and parse_line(string.match(text, '^[^\n]*\n([^\n]*)'))
  local pub = options.pub
  local anew = is_new_publish(task, line, pub)
  local is_by_run = task.state == 'running' and options.after == task.attempt
  local has_run = task.started or line and not text and option(line, 'ran')
  if line and (is_by_run or not options.after and anew and has_run and not FINAL[task.state]) then
    return 'next'
  end
  if options.after then
    return 'stale'
  end
  -- A run that publishes its own id after a cancel (the next step of a chain) begins no new life.
  local revoked = task.state == 'cancelled' and pub and string.sub(pub, 1, 1) == 's'
  if not (anew and FINAL[task.state] and not revoked) then
    return 'exists'
  end
end

-- changes_needs: return whether a successor has another name, other needs or other limits than its
-- task: then submit judges the successor as a new task.
local function changes_needs(task, kind)
  local name, needs = split_kind(task.line.kind)
  local _, _, limits = split_accounts(task.line.kind)
  local _, _, limits_now = split_accounts(kind.kind)
  return name ~= kind.name or needs ~= kind.needs or limits ~= limits_now
end

-- store_successor: store the successor of a task, for the end of its run. A successor that the run
-- itself submitted (`after`) is lost with the run, and does not replace a successor that others
-- published. With the option `start` the successor has an order of its own, else that of its task.
local function store_successor(task, kind, options, message)
  local due = after_ms(now_ms(), options.delay or '')
  local expires_ms = add_expiry(task.id, options.expiry)
  if not (options.after and task.extra.next and others_published(task.extra.next)) then
    local pub = not options.after and options.pub or nil
    local order
    if options.start then
      LAST_VERSION = LAST_VERSION + 1
      order = string.format('%d', kind.base + LAST_VERSION + shift_of(options.start))
    end
    local kept =
      kept_options({max = options.max, any = options.any, pub = pub, order = order}, expires_ms)
    task.extra.next = string.format('%s %s %s %s', kind.priority, due or '-', kept, kind.kind)
    -- HDEL comes first: a full server allows a script that begins with HDEL, see
    -- docs/decisions/0015.
    redis.call('HDEL', KEY.extra .. task.id, 'next')
    put_extra(task, 'next', task.extra.next, 'next_message', message)
    put_line(task)
    if order then
      write_version(KEY.meta)
    end
  end
end

-- forget_ended: remove the record of a task that had ended before its new life.
local function forget_ended(id)
  redis.call('HDEL', KEY.ended, id)
  redis.call('HDEL', KEY.ended_1, id)
  redis.call('HDEL', KEY.ended_2, id)
  redis.call('ZREM', KEY.dead, id)
  redis.call('DEL', KEY.extra .. id)
end

-- write_options: write the delays and the expiries of the call's tasks, and forget the ended tasks
-- whose ids begin a new life.
local function write_options()
  write_all('ZADD', KEY.later, DELAYS)
  write_all('ZADD', KEY.expires, EXPIRIES)
  for _, id in ipairs(RENEWED) do
    forget_ended(id)
  end
end
