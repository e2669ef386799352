-- Look at entries of indexes, and at records of tasks that have ended. Writes nothing.
--- @include place/lease
--- @include task/transitions

-- is_dated: return whether the version of a kind is of the past, and no other kind has it.
-- version: false for none; latest: the present version.
local function is_dated(version, latest)
  local number = tonumber(version or '')
  return number and number >= 1 and number <= latest
    and #redis.call('ZRANGEBYSCORE', KEY.changed, version, version, 'LIMIT', 0, 2) == 1
end

-- has_its_line: return whether the line and the version of a kind say what its queue says.
-- latest: the present version.
local function has_its_line(kind, latest)
  local pending = KEY.pending .. kind
  local line = redis.call('HGET', KEY.kinds, kind)
  local waiting, first, last = parse_kind(line)
  local count = redis.call('ZCARD', pending)
  local version = redis.call('ZSCORE', KEY.changed, kind)
  if (version or count > 0) and not is_dated(version, latest) then
    return false
  end
  if count == 0 or not waiting then
    return count == 0 and not line
  end
  return waiting == count and first == order_at(pending, 0) and last >= order_at(pending, -1)
end

-- look_at_entries: report the entries of an index, or the messages, of which there is no task; of
-- the queue of a kind, also the tasks of another kind.
local function look_at_entries(index, kind, ids, suspect)
  for i, text in ipairs(read_list(KEY.tasks, ids)) do
    local line = parse_line(text or '')
    local is_of_kind = index ~= 'pending' or line and line.kind == kind
    if not text or not is_of_kind then
      suspect(ids[i])
    end
  end
end

-- is_run: return whether a text is a place of this task, or the text of a run with such a place.
local function is_run(text, id)
  local place, started = run_parts(text)
  return (not started or #started < 16) and task_at(place or text) == id
end

-- is_end: return whether a text is a record of a task that has ended.
local function is_end(text)
  local state = string.match(text, '^(%l+) %d+\n[^\n]*\n[^\n]*\n')
  return FINAL[state or ''] or false
end

-- count_ends: return {id -> number of records} of tasks that have ended: each has one.
local function count_ends(ids)
  local counts = {}
  for _, key in ipairs({KEY.ended, KEY.ended_1, KEY.ended_2}) do
    for id in pairs(read_fields(key, ids)) do
      counts[id] = (counts[id] or 0) + 1
    end
  end
  return counts
end

-- look_at_ends: report unreadable records of tasks that have ended, and tasks with two records.
local function look_at_ends(ids, texts, suspect)
  local counts = count_ends(ids)
  for i, text in ipairs(texts) do
    if not is_end(text) or counts[ids[i]] ~= 1 then
      suspect(ids[i])
    end
  end
end
