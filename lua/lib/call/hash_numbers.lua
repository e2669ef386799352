-- read_counts: return nil and these fields of a hash as text, or the error reply if one of the first three is no number. Scripts
-- whose header READS the hash call it; for the others the check of the keys looks at the numbers (lib/call/arguments.lua).
local function read_counts(any, one, two, three, ...)
  local found = redis.call('HMGET', any, one, two, three, ...)
  for i = 1, 3 do
    local value = found[i]
    if value and not (#value < 16 and string.find(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, ({one, two, three})[i]))
    end
  end
  return nil, unpack(found)
end

-- bad_counts: put the numbers of the queue's meta into COUNTED. Return the error reply for a field that is no number; or nil and
-- up to two further fields that the caller names.
local function bad_counts(meta, ...)
  local bad, version, submitted, floor, more, another = read_counts(meta, 'version', 'submitted', 'floor', ...)
  if bad then return bad end
  COUNTED = {version = tonumber(version or 0), submitted = tonumber(submitted or 0), floor = tonumber(floor or 0)}
  return nil, more, another
end
