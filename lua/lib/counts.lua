-- read_counts: return nil and these number fields of a hash as text, or the error reply for one that is no number. Scripts whose
-- header READS the hash call it; for the others the check of the keys looks at the numbers (lib/arguments.lua).
local function read_counts(any, ...)
  local found, fields = redis.call('HMGET', any, ...), {...}
  for i, value in ipairs(found) do
    if value and not (#value < 16 and string.find(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, fields[i]))
    end
  end
  return nil, unpack(found)
end

-- bad_counts: put the numbers of the queue's meta into COUNTED; return the error reply for a field that is no number, or nil.
local function bad_counts(meta)
  local bad, version, submitted, floor = read_counts(meta, 'version', 'submitted', 'floor')
  if bad then return bad end
  COUNTED.version, COUNTED.submitted, COUNTED.floor = tonumber(version or 0), tonumber(submitted or 0), tonumber(floor or 0)
end
