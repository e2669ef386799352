-- Check what a call of submit names once: its kinds, and the keys that only some calls need.
--- @include kind/fits
--- @include kind/waiting
--- @include task/line

-- split_line: return the name and the needs of a kind; or nil and the error reply.
local function split_line(kind)
  if #kind > 12000 then return nil, redis.error_reply('PSARGS a kind has 12,000 bytes at most') end
  local name, needs = split_kind(kind)
  if not name or #name > 255 or not string.find(name, '^[!-~]+$') then
    return nil, redis.error_reply('PSARGS the name of a task is printable and has no spaces')
  end
  if not string.find(needs, '^slots=%d') or not are_needs(needs) then
    return nil, redis.error_reply('PSARGS needs are words NAME=N and NAME:CONDITION, slots=N first')
  end
  return name, needs
end

-- kinds_of: read lines 'PRIORITY KIND'; return {number of the line, as text -> its fields}, or nil and the error reply.
local function kinds_of(text, pending_prefix)
  local found, last = {}, 0
  for priority, kind in string.gmatch(text, '(%d) ([^\n]+)') do
    local name, needs = string.match(kind, '^([!-~]+) (slots=%d.*)$')
    local plain = name and #name < 256 and #kind <= 12000 and has_only_words(needs, true)
    if not plain then name, needs = in_full().split_line(kind) end -- it has a strategy
    local bad = not name and needs or bad_kind(pending_prefix, kind)
    last = last + 1
    bad = bad or last > 1000 and in_full().too_many('submit', 1000)
    if bad then return nil, bad end
    found[string.format('%d', last)] =
      {priority = priority, base = (9 - priority) * 1e12, kind = kind, name = name, needs = needs}
  end
  return found
end

-- look_again: check the types of the keys that only some submissions need and that are read after the first write. Return the
-- tasks that exist, by id; or nil and the error reply for a key of another type.
local function look_again(asked, again)
  local bad, timed = nil, #again > 0
  for _, options in pairs(asked) do timed = timed or options.delay or options.expiry end
  if not timed then return {} end
  for _, name in ipairs({'kinds', 'shapes', 'feasible', 'names'}) do bad = bad or bad_type(KEY[name], 'hash') end
  for _, name in ipairs({'changed', 'later', 'expires', 'dead'}) do bad = bad or bad_type(KEY[name], 'zset') end
  for _, id in ipairs(again) do bad = bad or bad_type(KEY.extra .. id, 'hash') end
  if bad then return nil, bad end
  return load_tasks(again)
end
