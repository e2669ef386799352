-- Submissions with options, and submissions under the id of a task that exists.
--- @include task/transitions
--- @include task/submission

-- kept_options: return the options that the line of a task keeps, '-' for none.
local function kept_options(options, expires)
  local words = {}
  if expires then words[1] = 'expires=' .. expires end
  if options.max then words[#words + 1] = 'max=' .. options.max end
  if options.any then words[#words + 1] = 'any=1' end
  if options.pub then words[#words + 1] = 'pub=' .. options.pub end
  return #words > 0 and table.concat(words, ',') or '-'
end

local DELAYS, EXPIRIES, RENEWED = {}, {}, {} -- what goes to `later` and `expires`; ids that begin a new life

-- timing: return when a new task is due (ms), nil for at once, and the options that its line keeps; known: its id had a task.
local function timing(id, options, now, known)
  local due, expires_ms = after_ms(now, options.delay or ''), after_ms(now, options.expiry or '')
  if due then DELAYS[#DELAYS + 1], DELAYS[#DELAYS + 2] = due, id end
  if expires_ms then EXPIRIES[#EXPIRIES + 1], EXPIRIES[#EXPIRIES + 2] = expires_ms, id end
  if known then RENEWED[#RENEWED + 1] = id end
  return due, kept_options(options, expires_ms)
end

-- word_of: return the word for a submission under the id of a task that exists: exists, stale or next; nil for a new life.
local function word_of(task, options)
  local line = task.line or task.text and parse_line(string.match(task.text, '^[^\n]*\n([^\n]*)'))
  local publication, others = line and option(line, 'pub'), task.extra and parse_next(task.extra.next)
  local anew = options.pub and options.pub ~= publication and not (others and options.pub == option(others, 'pub'))
  local mine = task.state == 'running' and options.after == task.attempt
  local has_run = task.started or (line and not task.text and option(line, 'ran'))
  if line and (mine or (not options.after and anew and has_run and not FINAL[task.state])) then return 'next' end
  if options.after then return 'stale' end
  -- a run that publishes its cancelled id, a chain's next step, begins no new life
  local revoked = task.state == 'cancelled' and options.pub and string.sub(options.pub, 1, 1) == 's'
  if not (anew and FINAL[task.state] and not revoked) then return 'exists' end
end

-- asks_anew: return whether a successor has another name or other needs than its task, which was accepted with its own.
local function asks_anew(task, kind)
  local name, needs = split_kind(task.line.kind)
  return name ~= kind.name or needs ~= kind.needs
end

-- write_next: store the successor of a task, for the end of its run. A successor that the run itself submitted (`after`) is lost
-- with the run, and does not replace one that others published.
local function write_next(task, kind, options, message, now)
  local due, expires_ms = after_ms(now, options.delay or ''), after_ms(now, options.expiry or '')
  if not (options.after and task.extra.next and is_others(task.extra.next)) then
    local kept = kept_options({max = options.max, any = options.any, pub = not options.after and options.pub or nil}, expires_ms)
    task.extra.next = string.format('%s %s %s %s', kind.priority, due or '-', kept, kind.kind)
    redis.call('HDEL', KEY.extra .. task.id, 'next') -- first: a full server allows it, docs/decisions/0015
    put_extra(task, 'next', task.extra.next, 'next_message', message)
    put_line(task)
  end
  if expires_ms then EXPIRIES[#EXPIRIES + 1], EXPIRIES[#EXPIRIES + 2] = expires_ms, task.id end
end

-- forget: remove the record of a task that had ended before its new life.
local function forget(id)
  redis.call('HDEL', KEY.ended, id)
  redis.call('HDEL', KEY.ended_1, id)
  redis.call('HDEL', KEY.ended_2, id)
  redis.call('ZREM', KEY.dead, id)
  redis.call('DEL', KEY.extra .. id)
end

-- write_asked: write what options ask for besides the lines.
local function write_asked()
  write_all('ZADD', KEY.later, DELAYS)
  write_all('ZADD', KEY.expires, EXPIRIES)
  for _, id in ipairs(RENEWED) do forget(id) end
end
