-- Reads and writes of many values. A script reads every record before its first write, so that it
-- finds damage in time, and writes each index with one command. `unpack` can return only some
-- thousands of values, so a command has 1,000 at most.

-- write_all: call a command, such as ZADD, on a key with all these values. Return the sum of the
-- replies.
local function write_all(command, any, values)
  local size = #values
  if size == 0 then
    return 0
  end
  if size <= 1000 then
    return redis.call(command, any, unpack(values))
  end
  local sum = 0
  for from = 1, size, 1000 do
    sum = sum + redis.call(command, any, unpack(values, from, math.min(from + 999, size)))
  end
  return sum
end

-- read_list: return the texts of these fields of a hash, in their order; false for a missing field.
local function read_list(any, fields)
  local size = #fields
  if size == 0 then
    return {}
  end
  if size <= 1000 then
    return redis.call('HMGET', any, unpack(fields))
  end
  local texts = {}
  for from = 1, size, 1000 do
    local chunk = redis.call('HMGET', any, unpack(fields, from, math.min(from + 999, size)))
    for i, text in ipairs(chunk) do
      texts[from + i - 1] = text
    end
  end
  return texts
end

-- read_fields: return {field -> text} of these fields of a hash, without the missing fields.
local function read_fields(any, fields)
  local texts = {}
  for from = 0, #fields - 1, 1000 do
    local chunk = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
    for i, text in ipairs(chunk) do
      if text then -- a nil would take a place in the table
        texts[fields[from + i]] = text
      end
    end
  end
  return texts
end

-- flat: return {key, value, ...} of a table, for a write.
local function flat(values)
  local words = {}
  for key, value in pairs(values) do
    words[#words + 1] = key
    words[#words + 1] = value
  end
  return words
end
