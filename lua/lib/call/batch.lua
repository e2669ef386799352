-- Helpers of scripts over many tasks: read every record before the first write, so that damage is found in time; write each
-- index with one command.

-- write_all: call a command on a key with all these values, 1,000 at a time: `unpack` can return only some thousands. Return
-- the sum of the replies.
local function write_all(command, any, values)
  local sum, size = 0, #values
  if size <= 1000 then return size > 0 and redis.call(command, any, unpack(values)) or 0 end
  for at = 1, size, 1000 do
    sum = sum + redis.call(command, any, unpack(values, at, math.min(at + 999, size)))
  end
  return sum
end

-- read_list: return the texts of these fields of a hash, in their order; false for those that it has not.
local function read_list(any, fields)
  if #fields <= 1000 then return #fields > 0 and redis.call('HMGET', any, unpack(fields)) or {} end
  local found = {}
  for from = 1, #fields, 1000 do
    for i, text in ipairs(redis.call('HMGET', any, unpack(fields, from, math.min(from + 999, #fields)))) do
      found[from + i - 1] = text
    end
  end
  return found
end

-- read_fields: return {field -> text} of those of the fields that the hash has.
local function read_fields(any, fields)
  local found = {}
  for from = 0, #fields - 1, 1000 do
    local texts = redis.call('HMGET', any, unpack(fields, from + 1, math.min(from + 1000, #fields)))
    for i, text in ipairs(texts) do
      if text then found[fields[from + i]] = text end -- a nil would take a place in the table
    end
  end
  return found
end

-- flat: return {key, value, ...} of a table, for a write.
local function flat(values)
  local words = {}
  for key, value in pairs(values) do
    words[#words + 1], words[#words + 2] = key, value
  end
  return words
end
