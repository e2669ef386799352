-- Numbers in the fields of a hash, read and checked with one command.

-- read_counts: read fields of a hash, of which the first three are numbers. Return nil and the
-- texts of the fields; or the error reply if one of the first three is no number. Scripts that have
-- the hash in the READS of their header call read_counts; in other scripts the check of the keys
-- (lib/call/arguments.lua) reads the numbers.
local function read_counts(any, first, second, third, ...)
  local texts = redis.call('HMGET', any, first, second, third, ...)
  for i = 1, 3 do
    local text = texts[i]
    if text and not (#text < 16 and string.find(text, '^%-?%d+$')) then
      local field = ({first, second, third})[i]
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, field))
    end
  end
  return nil, unpack(texts)
end

-- bad_counts: put the numbers of the queue's meta into COUNTED. Return the error reply for a field
-- that is no number; or nil and the texts of up to two further fields that the caller names.
local function bad_counts(meta, ...)
  local refusal, version, submitted, floor, fourth, fifth =
    read_counts(meta, 'version', 'submitted', 'floor', ...)
  if refusal then
    return refusal
  end
  COUNTED = {
    version = tonumber(version or 0),
    submitted = tonumber(submitted or 0),
    floor = tonumber(floor or 0),
  }
  return nil, fourth, fifth
end
