-- What a submission must be. Needs lib/arguments.lua and lib/fits.lua. Limits: parsync_redis/model/limits.py.
--- @include fits

-- bad_submission: the error reply for a task that is not well formed, or nil; nothing is written before all are.
local function bad_submission(id, name, needs, _, priority, delay_ms, expiry_ms, _, _, message)
  if #id > 128 or not string.find(id, '^%w[%w_.:@+-]*$') or #name > 255 or not string.find(name, '^[!-~]+$') then
    return redis.error_reply('PSARGS an id is letters, digits or _.:@+-, a name is printable and has no spaces')
  end
  if #message > 2097152 then return redis.error_reply('PSARGS a message has 2,097,152 bytes at most') end
  if not string.find(needs, '^slots=%d') or not well_formed(needs) then
    return redis.error_reply('PSARGS needs are words NAME=N and NAME:VALUE, slots=N first')
  end
  return bad_number('priority', priority, 0, 9)
    or delay_ms ~= '' and bad_number('delay_ms', delay_ms, 0, 1e12)
    or expiry_ms ~= '' and bad_number('expiry_ms', expiry_ms, -1e12, 1e12)
    or nil
end
