-- Check submissions: the rows of submit, and the kinds that a call names once. Needs lib/arguments.lua. Limits:
-- parsync_redis/model/limits.py.
--- @include clock
--- @include kinds
--- @include line
--- @include record
local PLAIN = {} -- the options of a row that has none

-- kinds_of: read lines 'PRIORITY KIND'; return {number of the line, as text -> its fields}, or nil and the error reply.
local function kinds_of(text, pending_prefix)
  local found, last = {}, 0
  for priority, kind in string.gmatch(text, '(%d) ([^\n]+)') do
    local name, needs = split_kind(kind)
    if not name or #name > 255 or not string.find(name, '^[!-~]+$') then
      return nil, redis.error_reply('PSARGS the name of a task is printable and has no spaces')
    end
    if not string.find(needs, '^slots=%d') or not well_formed(needs) then
      return nil, redis.error_reply('PSARGS needs are words NAME=N and NAME:VALUE, slots=N first')
    end
    local bad = bad_kind(pending_prefix, kind)
    if bad then return nil, bad end
    last = last + 1
    local number = string.format('%d', last)
    found[number] = {priority = priority, base = (9 - priority) * 1e12, kind = kind, name = name, needs = needs}
  end
  return found
end

-- options_of: return the words NAME=VALUE of a row as a table; or nil and the error reply.
local function options_of(text)
  local found = {}
  if #text > 1000 then return nil, redis.error_reply('PSARGS options have 1,000 bytes at most') end
  for name, value in string.gmatch(text, '(%l+)=(%S+)') do found[name] = value end
  local bad = found.max and bad_number('max_starts', found.max, 1, 1000)
    or found.delay and bad_number('delay_ms', found.delay, 0, 9e14)
    or found.expiry and bad_number('expiry_ms', found.expiry, -9e14, 9e14)
    or found.pub and not string.find(found.pub, '^%w+$') and redis.error_reply('PSARGS a publication is letters and digits')
  return not bad and found, bad
end

-- bad_timed: return the error reply for a key of another type that only submissions with times, or of these ids, need; or nil.
local function bad_timed(again)
  local bad
  for _, name in ipairs({'kinds', 'shapes', 'feasible', 'names'}) do bad = bad or bad_type(KEY[name], 'hash') end
  for _, name in ipairs({'changed', 'later', 'expires', 'dead'}) do bad = bad or bad_type(KEY[name], 'zset') end
  for _, id in ipairs(again) do bad = bad or bad_type(KEY.extra .. id, 'hash') end
  return bad
end

-- bad_id: return the error reply for an id or a message that is not valid, or nil.
local function bad_id(id, message)
  local uuid = string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+$') -- the usual case, and cheaper to find
  if #id > 3060 or not uuid and not string.find(id, '^[%w%%][%w%%_.:@+-]*$') then
    return redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX')
  end
  if #message > 2097152 then return redis.error_reply('PSARGS a message has 2,097,152 bytes at most') end
end
