-- look_over: look at some tasks of a shard, or at some entries of an index, for what contradicts
-- the rest.
-- KEYS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires pending: extra:
-- ALSO: accounts policy holders:
-- READS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires
-- ARGV: what cursor most
--   what: the hash or sorted set that is looked at; 'pending KIND' for the queue and the line of a
--   kind
--   cursor: 0, or the cursor of the last reply
-- RETURNS: {cursor, looked, highest, (id, kind)*}
--   looked: number of entries; highest: the largest LIFE; then the suspicious tasks, each with the
--   kind in whose queue it was seen. An id of '' stands for a kind with a wrong line
-- ERRORS: PSARGS
-- INVARIANT: the script writes nothing. repair_task judges each task that it names again.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(most)
--- @include repair/entries
--- @include repair/task_indexes
local SETS = ' pending later dead ' -- the sorted sets that `what` may name
local HASHES = ' tasks messages taken running ended ended_1 ended_2 ' -- the hashes
local suspects = {} -- (id, kind)*
local kind_of = {} -- id -> kind, as the line of the task says

-- suspect: add a task to the reply, with the kind that its line says or in whose queue it was seen.
local function suspect(id)
  local _, kind = string.match(args.what, '^(%S+) ?(.*)$')
  suspects[#suspects + 1] = id
  suspects[#suspects + 1] = kind_of[id] or kind
end

-- is_in: return whether a name is in a list of names.
local function is_in(list, name)
  return name and string.find(list, ' ' .. name .. ' ', 1, true) ~= nil
end

-- bad_argument: return the error reply for an argument that is out of range, for an unknown index,
-- and for a queue of another type, or nil.
local function bad_argument(index, kind)
  local refusal = bad_number('most', args.most, 1, 5000)
  if refusal then
    return refusal
  end
  if #args.cursor > 20 or not string.find(args.cursor, '^%d+$') then
    return redis.error_reply('PSARGS this is no cursor: ' .. args.cursor)
  end
  if not is_in(SETS, index) and not is_in(HASHES, index) then
    return redis.error_reply(
      'PSARGS look_over: there is no index ' .. string.sub(args.what, 1, 100))
  end
  return index == 'pending' and bad_type(KEY.pending .. kind, 'zset') or nil
end

-- scan: return the next cursor, and the ids and values of about `most` entries of an index.
local function scan(index, kind)
  local key = index == 'pending' and KEY.pending .. kind or KEY[index]
  local command = is_in(SETS, index) and 'ZSCAN' or 'HSCAN'
  local cursor, entries = unpack(redis.call(command, key, args.cursor, 'COUNT', args.most))
  local ids = {}
  local values = {}
  for i = 1, #entries, 2 do
    ids[#ids + 1] = entries[i]
    values[#values + 1] = entries[i + 1]
  end
  return cursor, ids, values
end

-- look_at_line: suspect the kind of a queue whose line is wrong.
local function look_at_line(kind)
  local version = redis.call('HGET', meta, 'version')
  if not has_its_line(kind, tonumber(version or 0) or 0) then
    suspect('')
  end
end

local index, kind = string.match(args.what, '^(%S+) ?(.*)$')
local refusal = bad_argument(index, kind)
if refusal then
  return refusal
end
local cursor, ids, values = scan(index, kind)
local reply = {cursor, #ids, 0}
if index == 'tasks' then
  reply[3] = look_at_tasks(ids, values, kind_of, suspect)
elseif is_in(' ended ended_1 ended_2 ', index) then
  look_at_ends(ids, values, suspect)
else
  look_at_entries(index, kind, ids, suspect)
  if index == 'pending' and args.cursor == '0' then
    look_at_line(kind)
  end
end
for _, word in ipairs(suspects) do -- unpack takes only some thousands of values
  reply[#reply + 1] = word
end
return reply
