-- Look for tasks that contradict their indexes, many tasks at once. Writes nothing.
--- @include repair/entries
--- @include repair/recount
--- @include task/line_check

-- look_at_kind: read the orders of tasks in the queue of their kind into `orders`, by row. Suspect
-- a kind with waiting tasks that has no line or no version.
-- rows: the numbers of the tasks of this kind among `ids`.
local function look_at_kind(kind, rows, ids, orders, suspect)
  local pending = KEY.pending .. kind
  local ids_of_kind = {}
  local is_waiting = false
  for i, row in ipairs(rows) do
    ids_of_kind[i] = ids[row]
  end
  local has_queue = not bad_type(pending, 'zset')
  local scores = has_queue and redis.call('ZMSCORE', pending, unpack(ids_of_kind)) or {}
  for i, row in ipairs(rows) do
    orders[row] = scores[i]
    is_waiting = is_waiting or scores[i]
  end
  if not is_waiting then
    return
  end
  local line = redis.call('HGET', KEY.kinds, kind)
  if not line or not redis.call('ZSCORE', KEY.changed, kind) then
    suspect('', kind)
  end
end

-- is_late: return whether nobody would check a task's expiry in time.
-- listed: the score of the task in `expires`, or false; now: ms.
local function is_late(line, listed, now)
  local due = option(line, 'expires')
  if not due or #due > 15 or not string.find(due, '^%d+$') then
    return false
  end
  return not listed or tonumber(listed) > math.max(due, now + 60000)
end

-- fits_index: return whether a task is in exactly one index, with the order or time of its line.
-- order, due, owner, run, died: its entries in the queue of its kind, `later`, `taken`, `running`
-- and `dead`, false or nil for none. A dead task has extra:ID.
local function fits_index(line, order, due, owner, run, died)
  local count = (order and 1 or 0) + (due and 1 or 0) + (owner and 1 or 0) + (run and 1 or 0)
    + (died and 1 or 0)
  if count ~= 1 or died and line.mark ~= '+' then
    return false
  end
  local is_misplaced = order and tonumber(order) ~= tonumber(line.order)
  local is_mistimed = due and tonumber(due) ~= tonumber(line.ready)
  return not is_misplaced and not is_mistimed
end

-- read_lines_of_tasks: read the lines of tasks, and fill kind_of {id -> kind}.
-- Returns the lines (false for a text that is no line), {kind -> rows}, and the largest LIFE that a
-- cluster can have counted to (8e11).
local function read_lines_of_tasks(ids, texts, kind_of)
  local lines = {}
  local rows_of_kind = {}
  local highest = 0
  for i, text in ipairs(texts) do
    local line = parse_line(text)
    lines[i] = line or false
    if line then
      rows_of_kind[line.kind] = rows_of_kind[line.kind] or {}
      table.insert(rows_of_kind[line.kind], i)
      kind_of[ids[i]] = line.kind
      local life = tonumber(line.life)
      if life <= 8e11 then
        highest = math.max(highest, life)
      end
    end
  end
  return lines, rows_of_kind, highest
end

-- read_entries: return the entries of tasks in the indexes, each index as a list beside `ids`, and
-- the records {id -> text} of tasks that have ended.
local function read_entries(ids)
  return {
    owners = read_list(KEY.taken, ids),
    runs = read_list(KEY.running, ids),
    ends = ended_texts(ids),
    due = redis.call('ZMSCORE', KEY.later, unpack(ids)),
    died = redis.call('ZMSCORE', KEY.dead, unpack(ids)),
    listed = redis.call('ZMSCORE', KEY.expires, unpack(ids)),
  }
end

-- tells_attempt: return whether a line tells the attempt of the task's owner or run.
local function tells_attempt(line, owner, run)
  local attempt = owner or attempt_of(run)
  local takes, life = string.match(attempt or '', '^(%d+)@(%d+)%.')
  return life == line.life and #takes < 10 and tonumber(takes) == line.takes + 1
end

-- is_sound_task: return whether the task in row i agrees with its indexes.
local function is_sound_task(id, line, order, entries, i, now)
  local owner = entries.owners[i]
  local run = entries.runs[i]
  local died = entries.died[i]
  if not line or flaw(line) or not fits_index(line, order, entries.due[i], owner, run, died) then
    return false
  end
  if redis.call('HEXISTS', KEY.messages, id) == 0 or entries.ends[id] then
    return false
  end
  if (owner or run) and not tells_attempt(line, owner, run) or run and not is_run(run, id) then
    return false
  end
  if (owner or run) and has_accounts(line.kind) and not is_counted(id, line.kind) then
    return false
  end
  return run or died or not is_late(line, entries.listed[i], now)
end

-- look_at_tasks: suspect tasks whose lines contradict their indexes. Returns the largest LIFE.
local function look_at_tasks(ids, texts, kind_of, suspect)
  if #ids == 0 then
    return 0
  end
  local now = tonumber(now_ms())
  local lines, rows_of_kind, highest = read_lines_of_tasks(ids, texts, kind_of)
  local orders = {} -- row -> order of the task in the queue of its kind
  for kind, rows in pairs(rows_of_kind) do
    look_at_kind(kind, rows, ids, orders, function(id)
      kind_of[id] = kind
      suspect(id)
    end)
  end
  local entries = read_entries(ids)
  for i, id in ipairs(ids) do
    if not is_sound_task(id, lines[i], orders[i], entries, i, now) then
      suspect(id)
    end
  end
  return highest
end
