-- repair_queue: delete keys of a shard that have another type, repair the numbers of `meta`, and count what there is.
-- KEYS: meta kinds changed later tasks messages taken running dead, of any type
-- ARGV: how level shards
--   how: 'look' only tells; 'repair'; level: a number of submissions that there has been, or the LIFE of a task
--   shards: the number of shards of the cluster
-- RETURNS: {tasks, messages, indexed, submitted, (key, field, text)*}; indexed: how many entries the indexes of tasks have
--   together, -1 if there are too many kinds to add up; submitted: as it is now; then what was damaged
-- ERRORS: PSARGS
-- INVARIANT: the number of submissions only grows, by a million beyond the level if it was damaged: nobody can have submitted so
--   many since somebody saw the level. The content of deleted keys is made anew from the others, see docs/keys.md.
-- ATOMICITY: whole.
-- COMPLEXITY: O(kinds), 5,000 at most
--- @include call/clock
--- @include kind/line
--- @include repair/types
local MOST, JUMP = 9e11, 1000000
local HIGH = 8e11 -- a cluster counts that far in years: a number beyond it was written by hand, and submit ends at MOST
local level, look, told = tonumber(args.level), args.how == 'look', {}
if not look and args.how ~= 'repair' then return redis.error_reply('PSARGS how is look or repair') end
local bad = bad_number('level', args.level, 0, MOST) or bad_number('shards', args.shards, 1, 256)
if bad then return bad end
local function tell(any, field, text)
  for _, word in ipairs({any, field, text}) do told[#told + 1] = word end
end
local wrong = wrong_types(tell)
if not look then
  for any in pairs(wrong) do redis.call('DEL', any) end
end

local skip = look and wrong or {}
local lines = skip[kinds] and {} or redis.call('HLEN', kinds) <= 5000 and redis.call('HVALS', kinds)

-- number: return a number of meta; nil if it has none, or one that nobody counts to.
local function number(text, most)
  local found = text and #text < 16 and string.find(text, '^%d+$') and tonumber(text)
  return found and found <= most and found or nil
end

local fields = {'submitted', 'version', 'floor', 'shards'}
local texts = skip[meta] and {} or redis.call('HMGET', meta, unpack(fields))
local many = skip[tasks] and 0 or redis.call('HLEN', tasks)
local held = many + (lines and #lines or 1)
local submitted, version, floor = number(texts[1], HIGH), number(texts[2], 9.9e14), number(texts[3], 9.9e14)
local mended = {}
local function mend(i, value)
  if texts[i] or value then tell(meta, fields[i], texts[i] or 'missing') end
  if value then mended[#mended + 1], mended[#mended + 2] = fields[i], string.format('%d', value) end
end
if (submitted or 0) < level or texts[1] and not submitted then
  submitted = math.min(MOST, level + JUMP)
  mend(1, submitted)
end
local listed = (lines and #lines or 1) + (skip[changed] and 0 or redis.call('ZCARD', changed))
if not version and (texts[2] or listed > 0) then -- tasks that are only delayed have changed no kind
  version = math.min(now_ms() * 100, 9e14)
  mend(2, version)
  floor = nil
  texts[3] = texts[3] or 'missing'
end
if texts[3] and (not floor or floor > (version or 0)) then mend(3, version or 0) end -- copies from before are read anew
if texts[4] ~= args.shards and not (not texts[4] and held == 0) then mend(4, args.shards) end
if not look then
  redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
  write_all('HSET', meta, mended)
end
local indexed = (skip[taken] and 0 or redis.call('HLEN', taken)) + (skip[running] and 0 or redis.call('HLEN', running))
  + (skip[later] and 0 or redis.call('ZCARD', later)) + (skip[dead] and 0 or redis.call('ZCARD', dead))
for _, line in ipairs(lines or {}) do indexed = indexed + (parse_kind(line) or 0) end
if not lines then indexed = -1 end
return {many, skip[messages] and 0 or redis.call('HLEN', messages), indexed, submitted or 0, unpack(told)}
