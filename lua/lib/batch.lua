-- What scripts over many tasks share: every record is read before anything is written, so that one that is damaged is met
-- in time, and what goes to one index goes there in one command. Needs lib/arguments.lua.

-- read_tasks: what `read(key)` finds for each key behind the first `before`, in order; or nil and the error reply for one that
-- is no hash. Of a task that is named twice there is nothing for the second time: it is read again once the first is done.
local function read_tasks(before, read)
  local found, seen = {}, {}
  for at = before + 1, #KEYS do
    local key = KEYS[at]
    if not seen[key] then
      local record = read(key)
      if record.err then return nil, bad_key(at, key) or record end
      found[at - before], seen[key] = record, true
    end
  end
  return found
end

-- write_all: a command on a key with all these values, 1,000 at a time: Lua's `unpack` bears some thousands.
local function write_all(command, any, values)
  for at = 1, #values, 1000 do redis.call(command, any, unpack(values, at, math.min(at + 999, #values))) end
end

-- read_fields: {field -> text} of those of these fields of a hash that are there.
local function read_fields(any, fields)
  local found = {}
  for from = 0, #fields - 1, 1000 do
    local texts = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
    for i, text in ipairs(texts) do found[fields[from + i]] = text or nil end
  end
  return found
end

-- flat: {key, value}* of a table, for a write.
local function flat(values)
  local words = {}
  for key, value in pairs(values) do
    words[#words + 1], words[#words + 2] = key, value
  end
  return words
end
