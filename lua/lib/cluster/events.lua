-- Events: what happened out of the ordinary, for people, in a capped stream of each tag. No script reads them, and none stops
-- because of them: a damaged stream begins anew. A script that calls this has `events` among its keys, and has written before.
--- @include call/clock

-- note_event: add an event; fields: task, name, node, attempt, scheduler, why and by, as far as there are any.
local function note_event(event, fields)
  local words = {'event', event}
  for _, name in ipairs({'task', 'name', 'node', 'attempt', 'scheduler', 'why', 'by'}) do
    local value = fields[name] or ''
    if value ~= '' then words[#words + 1], words[#words + 2] = name, string.sub(value, 1, name == 'why' and 300 or 4096) end
  end
  local id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
  local told = type(id) == 'table' and tostring(id.err) or ''
  local damaged = string.find(told, 'WRONGTYPE', 1, true) or string.find(told, 'last possible ID', 1, true)
  if damaged or told == '' and string.match(id, '^%d+') - now_ms() > 3600000 then -- an id of a later year
    redis.pcall('DEL', KEY.events)
    id = redis.pcall('XADD', KEY.events, 'MAXLEN', '~', 10000, '*', unpack(words))
  end
  if type(id) == 'table' then redis.log(redis.LOG_WARNING, 'parsync: event ' .. event .. ' is lost: ' .. tostring(id.err)) end
end

-- note_task: add an event of a task; place: where this attempt was, if it had a place.
local function note_task(task, event, why, attempt, place)
  local node = string.match(place or '', '^%S+ %S+ p%d+ ([^ /]+)/')
  local name = task.line and string.match(task.line.kind, '^%S+')
  note_event(event, {task = task.id, name = name, node = node, attempt = attempt, why = why})
end
