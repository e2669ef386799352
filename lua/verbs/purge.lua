-- purge: delete the records of tasks that have ended, before their retention is over.
-- KEYS: expires tasks messages taken running dead ended ended_1 ended_2 extra:
-- ARGV: count state id*
--   state: the final state in which the caller saw each task
-- RETURNS: a word per task: purged, or its present state; gone if it has no record
-- ERRORS: PSARGS
-- INVARIANT: a task in another state stays: it was revived meanwhile, or its id has begun a new life.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include task/record
local wanted, ids, purged, extras, replies = args.state, {}, {}, {}, {}
if not FINAL[wanted] then return redis.error_reply('PSARGS purge deletes what has ended, not what is ' .. wanted) end
for i, row in rows() do ids[i] = row.id end
local found = load_tasks(ids)
for i, row in rows() do
  local task = found[row.id]
  if task and task.state == wanted then
    found[row.id] = nil
    purged[#purged + 1], extras[#extras + 1] = row.id, KEY.extra .. row.id
    replies[i] = 'purged'
  else
    replies[i] = task and task.state or 'gone'
  end
end
write_all('HDEL', tasks, purged)
write_all('HDEL', messages, purged)
write_all('HDEL', ended, purged)
write_all('HDEL', ended_1, purged)
write_all('HDEL', ended_2, purged)
write_all('ZREM', dead, purged)
write_all('ZREM', expires, purged)
for _, key in ipairs(extras) do redis.call('DEL', key) end
return replies
