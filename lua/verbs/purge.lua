-- purge: delete the records of tasks that have ended, before their retention is over.
-- KEYS: expires tasks messages taken running dead ended ended_1 ended_2 extra:
-- ARGV: count state id*
--   state: the final state in which the caller saw each task
-- RETURNS: a word per task: purged, or the task's present state; gone for an id without a record
-- ERRORS: PSARGS
-- INVARIANT: a task in another state stays: the task was revived meanwhile, or its id has begun a
--   new life.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include task/record

-- load_records: return {id -> record} of the tasks of all rows.
local function load_records()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  return load_tasks(ids)
end

-- choose_tasks: return a word per row, and the ids of the tasks to purge, each once.
local function choose_tasks(records)
  local replies = {}
  local purged_ids = {}
  for i, row in rows() do
    local task = records[row.id]
    if task and task.state == args.state then
      records[row.id] = nil
      purged_ids[#purged_ids + 1] = row.id
      replies[i] = 'purged'
    else
      replies[i] = task and task.state or 'gone'
    end
  end
  return replies, purged_ids
end

-- delete_records: delete these tasks from every key that may have them.
local function delete_records(ids)
  write_all('HDEL', tasks, ids)
  write_all('HDEL', messages, ids)
  write_all('HDEL', ended, ids)
  write_all('HDEL', ended_1, ids)
  write_all('HDEL', ended_2, ids)
  write_all('ZREM', dead, ids)
  write_all('ZREM', expires, ids)
  for _, id in ipairs(ids) do
    redis.call('DEL', KEY.extra .. id)
  end
end

if not FINAL[args.state] then
  return redis.error_reply('PSARGS purge deletes what has ended, not what is ' .. args.state)
end
local replies, purged_ids = choose_tasks(load_records())
delete_records(purged_ids)
return replies
