-- Look at entries of indexes, and at records of tasks that have ended. Writes nothing.
--- @include task/transitions

-- has_its_line: return whether the line of a kind says what its queue says, and has a version of
-- the past. latest: the present version.
local function has_its_line(kind, latest)
  local pending = KEY.pending .. kind
  local line = redis.call('HGET', KEY.kinds, kind)
  local waiting, first = parse_kind(line)
  local count = redis.call('ZCARD', pending)
  local version = redis.call('ZSCORE', KEY.changed, kind)
  if version and tonumber(version) > latest then
    return false
  end
  if count == 0 or not waiting then
    return count == 0 and not line
  end
  return waiting == count and first == order_at(pending, 0) and version ~= false
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

-- is_end: return whether a text is a record of a task that has ended.
local function is_end(text)
  local state = string.match(text, '^(%l+) %d+\n[^\n]*\n[^\n]*\n')
  return FINAL[state or ''] or false
end

-- look_at_ends: report unreadable records of tasks that have ended.
local function look_at_ends(ids, texts, suspect)
  for i, text in ipairs(texts) do
    if not is_end(text) then
      suspect(ids[i])
    end
  end
end
