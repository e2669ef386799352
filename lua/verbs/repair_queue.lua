-- repair_queue: delete keys of a shard that have another type, repair the numbers of `meta`, and
-- count what the shard has.
-- KEYS: meta kinds changed later tasks messages taken running dead, of any type
-- ARGV: how level shards
--   how: 'look' only reports; 'repair'
--   level: a number of submissions that there has been, or the LIFE of a task
--   shards: the number of shards of the cluster
-- RETURNS: {tasks, messages, indexed, submitted, (key, field, text)*}
--   indexed: how many entries the indexes of tasks have together, -1 if there are too many kinds to
--   add up; submitted: as it is now; then what was damaged
-- ERRORS: PSARGS
-- INVARIANT: the number of submissions only grows. A damaged number becomes a million more than the
--   level: nobody can have submitted so many tasks since somebody saw the level. The content of
--   deleted keys is made anew from the other keys, see docs/keys.md.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(kinds), 5,000 at most
--- @include call/clock
--- @include kind/line
--- @include repair/types
local MAX_SUBMISSIONS = 9e11 -- submit refuses more
local REACHABLE = 8e11 -- a cluster counts so far in years: a larger number was written by hand
local MARGIN = 1000000 -- more than anybody submits between a look at the level and the repair
local reports = {} -- (key, field, text)*
local mended = {} -- (field, number)* of meta
local skipped = {} -- {key -> true} of keys of another type, which 'look' leaves in place

-- report: add what was damaged to the reply.
local function report(key, field, text)
  reports[#reports + 1] = key
  reports[#reports + 1] = field
  reports[#reports + 1] = text
end

-- mend: report a damaged field of meta, and note the number that a repair writes into the field.
local function mend(field, text, number)
  report(meta, field, text or 'missing')
  mended[#mended + 1] = field
  mended[#mended + 1] = string.format('%d', number)
end

-- delete: delete the keys of another type.
local function delete(wrong)
  for any in pairs(wrong) do
    redis.call('DEL', any)
  end
end

-- size_of: return the number of entries of a key, 0 of a key that cannot be read.
local function size_of(command, key)
  return skipped[key] and 0 or redis.call(command, key)
end

-- number_of: return a number of meta; nil for any other text, and for a number beyond the limit.
local function number_of(text, limit)
  local number = text and #text < 16 and string.find(text, '^%d+$') and tonumber(text)
  return number and number <= limit and number or nil
end

-- mend_submitted: mend the number of submissions. Returns the number, nil if there is none.
local function mend_submitted(text, level)
  local submitted = number_of(text, REACHABLE)
  if (submitted or 0) < level or text and not submitted then
    submitted = math.min(MAX_SUBMISSIONS, level + MARGIN)
    mend('submitted', text, submitted)
  end
  return submitted
end

-- mend_versions: mend the version of the index of kinds, and its floor: copies of earlier versions
-- are read anew. has_kinds: whether a kind has changed; tasks that are only delayed change no kind.
local function mend_versions(version_text, floor_text, has_kinds)
  local version = number_of(version_text, 9.9e14)
  local floor = number_of(floor_text, 9.9e14)
  local has_floor = floor_text
  if not version and (version_text or has_kinds) then
    version = math.min(now_ms() * 100, 9e14)
    mend('version', version_text, version)
    floor = nil
    has_floor = true
  end
  if has_floor and (not floor or floor > (version or 0)) then
    mend('floor', floor_text, version or 0)
  end
end

-- mend_shards: mend the number of shards. An empty shard needs none.
local function mend_shards(text, is_empty)
  if text ~= args.shards and (text or not is_empty) then
    mend('shards', text, args.shards)
  end
end

-- mend_meta: mend the numbers of meta. lines: the lines of the kinds, nil if there are too many.
-- Returns the number of submissions, 0 if there is none.
local function mend_meta(lines, level)
  local fields = {'submitted', 'version', 'floor', 'shards'}
  local texts = skipped[meta] and {} or redis.call('HMGET', meta, unpack(fields))
  local kinds_at_least = lines and #lines or 1
  local has_kinds = kinds_at_least + size_of('ZCARD', changed) > 0
  local is_empty = size_of('HLEN', tasks) + kinds_at_least == 0
  local submitted = mend_submitted(texts[1], level)
  mend_versions(texts[2], texts[3], has_kinds)
  mend_shards(texts[4], is_empty)
  return submitted or 0
end

-- read_lines_of_kinds: return the lines of all kinds, nil if there are too many.
local function read_lines_of_kinds()
  if skipped[kinds] then
    return {}
  end
  local is_short = redis.call('HLEN', kinds) <= 5000 -- more lines would take too long to read
  return is_short and redis.call('HVALS', kinds) or nil
end

-- count_indexed: return the number of entries that the indexes of tasks have together; -1 without
-- the lines of the kinds.
local function count_indexed(lines)
  if not lines then
    return -1
  end
  local indexed = size_of('HLEN', taken) + size_of('HLEN', running)
    + size_of('ZCARD', later) + size_of('ZCARD', dead)
  for _, line in ipairs(lines) do
    indexed = indexed + (parse_kind(line) or 0)
  end
  return indexed
end

-- bad_argument: return the error reply for an argument that is out of range, or nil.
local function bad_argument()
  if args.how ~= 'look' and args.how ~= 'repair' then
    return redis.error_reply('PSARGS how is look or repair')
  end
  local refusal = bad_number('level', args.level, 0, MAX_SUBMISSIONS)
  return refusal or bad_number('shards', args.shards, 1, 256)
end

local refusal = bad_argument()
if refusal then
  return refusal
end
local wrong = wrong_types(report)
if args.how == 'look' then
  skipped = wrong
else
  delete(wrong)
end
local lines = read_lines_of_kinds()
local submitted = mend_meta(lines, tonumber(args.level))
if args.how == 'repair' then
  redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
  write_all('HSET', meta, mended)
end
return {size_of('HLEN', tasks), size_of('HLEN', messages), count_indexed(lines), submitted,
  unpack(reports)}
