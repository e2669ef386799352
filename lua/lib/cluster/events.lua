-- Events: what happened out of the ordinary, for people, in a capped stream of each tag. No script
-- reads the stream, and no script stops because of it: a damaged stream begins anew. A script that
-- calls these functions has `events` among its keys, and has written before.
--- @include call/clock

-- event_words: return the fields and values of an event for XADD.
local function event_words(event, fields)
  local words = {'event', event}
  for _, name in ipairs({'task', 'name', 'node', 'attempt', 'scheduler', 'why', 'by'}) do
    local value = fields[name] or ''
    if value ~= '' then
      words[#words + 1] = name
      words[#words + 1] = string.sub(value, 1, name == 'why' and 300 or 4096)
    end
  end
  return words
end

-- is_damaged_stream: return whether XADD cannot add an event of now: the key is no stream, or the
-- last id of the stream is more than an hour in the future. id: the reply of XADD.
local function is_damaged_stream(id)
  if type(id) ~= 'table' then
    return string.match(id, '^%d+') - now_ms() > 3600000
  end
  local err = tostring(id.err)
  return string.find(err, 'WRONGTYPE', 1, true) or string.find(err, 'last possible ID', 1, true)
end

-- note_event: add an event; fields: task, name, node, attempt, scheduler, why and by, as far as the
-- event has them.
local function note_event(event, fields)
  local words = event_words(event, fields)
  local id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
  if is_damaged_stream(id) then
    redis.pcall('DEL', KEY.events)
    id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
  end
  if type(id) == 'table' then
    local message = 'parsync: event ' .. event .. ' is lost: ' .. tostring(id.err)
    redis.log(redis.LOG_WARNING, message)
  end
end

-- note_task: add an event of a task; place: the place of this attempt, or nil.
local function note_task(task, event, why, attempt, place)
  local node = string.match(place or '', '^%S+ %S+ p%d+ ([^ /]+)/')
  local name = task.line and string.match(task.line.kind, '^%S+')
  note_event(event, {task = task.id, name = name, node = node, attempt = attempt, why = why})
end
