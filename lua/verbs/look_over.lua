-- look_over: look at some tasks of a shard, or at some entries of an index, for what contradicts the rest.
-- KEYS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires pending: extra:
-- READS: meta kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires
-- ARGV: what cursor most
--   what: the hash or sorted set that is looked at; 'pending KIND' for the queue of a kind, and the line of the kind
--   cursor: 0, or as the last reply says
-- RETURNS: {cursor, looked, highest, (id, kind)*}; looked: how many entries; highest: the largest LIFE; then what is suspicious,
--   and the kind of which it was seen to wait; an id of '' is a kind
--   with a wrong line
-- ERRORS: PSARGS
-- INVARIANT: it writes nothing; repair_task judges each task that it names again.
-- ATOMICITY: whole.
-- COMPLEXITY: O(most)
--- @include repair/entries
--- @include repair/task_indexes
local name, its = string.match(args.what, '^(%S+) ?(.*)$')
local bad = bad_number('most', args.most, 1, 5000)
if bad then return bad end
local known = #args.cursor <= 20 and string.find(args.cursor, '^%d+$')
if not known then return redis.error_reply('PSARGS this is no cursor: ' .. args.cursor) end
local pending, entries, count = KEY.pending .. its, nil, 'COUNT'
bad = name == 'pending' and bad_type(pending, 'zset')
if bad then return bad end
if name == 'pending' then entries = redis.call('ZSCAN', pending, args.cursor, count, args.most) end
if name == 'later' then entries = redis.call('ZSCAN', later, args.cursor, count, args.most) end
if name == 'dead' then entries = redis.call('ZSCAN', dead, args.cursor, count, args.most) end
if name == 'tasks' then entries = redis.call('HSCAN', tasks, args.cursor, count, args.most) end
if name == 'messages' then entries = redis.call('HSCAN', messages, args.cursor, count, args.most) end
if name == 'taken' then entries = redis.call('HSCAN', taken, args.cursor, count, args.most) end
if name == 'running' then entries = redis.call('HSCAN', running, args.cursor, count, args.most) end
if name == 'ended' then entries = redis.call('HSCAN', ended, args.cursor, count, args.most) end
if name == 'ended_1' then entries = redis.call('HSCAN', ended_1, args.cursor, count, args.most) end
if name == 'ended_2' then entries = redis.call('HSCAN', ended_2, args.cursor, count, args.most) end
if not entries then return redis.error_reply('PSARGS look_over: there is no index ' .. string.sub(args.what, 1, 100)) end
local cursor = entries[1]
entries = entries[2]
local ids, values, kind_of = {}, {}, {}
for i = 1, #entries, 2 do ids[#ids + 1], values[#values + 1] = entries[i], entries[i + 1] end
local suspects, highest, size = {}, 0, #ids
local function suspect(id) suspects[#suspects + 1], suspects[#suspects + 2] = id, kind_of[id] or its end
if name == 'tasks' then
  highest = look_at_tasks(ids, values, kind_of, suspect)
elseif string.find(name, '^ended') then
  look_at_ends(ids, values, suspect)
else
  look_at_entries(name, its, ids, suspect)
  local first, version = name == 'pending' and args.cursor == '0', redis.call('HGET', meta, 'version')
  if first and not has_its_line(its, tonumber(version or 0) or 0) then suspect('', its) end
end
local reply = {cursor, size, highest}
for _, word in ipairs(suspects) do reply[#reply + 1] = word end -- they may be too many for unpack
return reply
