-- Look for tasks that contradict their indexes, many at once. It writes nothing.
--- @include task/transitions
--- @include task/line_check

-- look_at_kind: compare the tasks of a kind with its queue; waits: {number of the task -> its score there}.
local function look_at_kind(kind, rows, ids, waits, suspect)
  local some, pending = {}, KEY.pending .. kind
  for i, at in ipairs(rows) do some[i] = ids[at] end
  local there = not bad_type(pending, 'zset') and redis.call('ZMSCORE', pending, unpack(some)) or {}
  local waiting = false
  for i, at in ipairs(rows) do waits[at], waiting = there[i], waiting or there[i] end
  if waiting and not (redis.call('HGET', KEY.kinds, kind) and redis.call('ZSCORE', KEY.changed, kind)) then suspect('', kind) end
end

-- is_late: return whether nobody would check a task's expiry in time.
local function is_late(line, listed, now)
  local due = option(line, 'expires')
  if not due or #due > 15 or not string.find(due, '^%d+$') then return false end
  return not listed or tonumber(listed) > math.max(due, now + 60000)
end

-- fits_index: return whether a task is in one index, as its line says.
local function fits_index(line, order, due, owner, run, died)
  local count = (order and 1 or 0) + (due and 1 or 0) + (owner and 1 or 0) + (run and 1 or 0) + (died and 1 or 0)
  if count ~= 1 or died and line.mark ~= '+' then return false end -- one that is dead has extra:ID
  return not (order and tonumber(order) ~= tonumber(line.order)) and not (due and tonumber(due) ~= tonumber(line.ready))
end

-- look_at_tasks: judge tasks by their lines; return the largest LIFE.
local function look_at_tasks(ids, texts, kind_of, suspect)
  local lines, kinds, waits, highest, now = {}, {}, {}, 0, tonumber(now_ms())
  if #ids == 0 then return 0 end
  for at, text in ipairs(texts) do
    local line = parse_line(text)
    lines[at] = line or false
    if line then
      kinds[line.kind] = kinds[line.kind] or {}
      table.insert(kinds[line.kind], at)
      kind_of[ids[at]] = line.kind
      if tonumber(line.life) <= 8e11 then highest = math.max(highest, tonumber(line.life)) end
    end
  end
  for kind, rows in pairs(kinds) do
    look_at_kind(kind, rows, ids, waits, function(id) kind_of[id] = kind suspect(id) end)
  end
  local owners, runs, over = read_list(KEY.taken, ids), read_list(KEY.running, ids), ended_texts(ids)
  local due, died = redis.call('ZMSCORE', KEY.later, unpack(ids)), redis.call('ZMSCORE', KEY.dead, unpack(ids))
  local listed = redis.call('ZMSCORE', KEY.expires, unpack(ids))
  for at, id in ipairs(ids) do
    local line, owner, run = lines[at], owners[at], runs[at]
    local sound = line and not flaw(line) and fits_index(line, waits[at], due[at], owner, run, died[at])
    sound = sound and redis.call('HEXISTS', KEY.messages, id) == 1 and not over[id]
    local attempt = owner or run and attempt_of(run)
    if sound and (owner or run) then
      local takes, life = string.match(attempt or '', '^(%d+)@(%d+)%.')
      sound = life == line.life and #takes < 10 and tonumber(takes) == line.takes + 1
    end
    if sound and not run and not died[at] and is_late(line, listed[at], now) then sound = false end
    if not sound then suspect(id) end
  end
  return highest
end
