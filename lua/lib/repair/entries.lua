-- Look at entries of indexes, and at records of tasks that have ended. It writes nothing.
--- @include task/transitions

-- has_its_line: return whether the line of a kind says what its queue says, and changed at a version that there was.
local function has_its_line(kind, latest)
  local pending, line = KEY.pending .. kind, redis.call('HGET', KEY.kinds, kind)
  local waiting, first = parse_kind(line)
  local count, version = redis.call('ZCARD', pending), redis.call('ZSCORE', KEY.changed, kind)
  if version and tonumber(version) > latest then return false end
  if count == 0 or not waiting then return count == 0 and not line end
  return waiting == count and first == order_at(pending, 0) and version ~= false
end

-- look_at_entries: judge entries of an index, or messages, by whether there is such a task, and of a queue by its kind.
local function look_at_entries(name, kind, ids, suspect)
  for at, text in ipairs(read_list(KEY.tasks, ids)) do
    local line = parse_line(text or '')
    if not text or name == 'pending' and (not line or line.kind ~= kind) then suspect(ids[at]) end
  end
end

-- look_at_ends: judge the records of tasks that have ended.
local function look_at_ends(ids, texts, suspect)
  for at, text in ipairs(texts) do
    local state = string.match(text, '^(%l+) %d+\n[^\n]*\n[^\n]*\n')
    if not FINAL[state or ''] then suspect(ids[at]) end
  end
end
