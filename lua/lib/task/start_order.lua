-- Choose which tasks of a call of `start` run now, if only some may: those first in the queue's
-- order.
--- @include task/line

-- choose_waiting: return {row -> true} of the rows that must wait, because `limit` tasks of the
-- call run already or come first. Rows whose task has started before, so that only the reply was
-- lost, count too.
-- ids, owners, runs: of each row the id, the attempt that has taken the task, and the task's run.
local function choose_waiting(limit, ids, owners, runs)
  local lines = redis.call('HMGET', KEY.tasks, unpack(ids))
  local orders = {}
  local startable = {}
  local waits = {}
  for i, row in rows() do
    local place = row.text
    local run = runs[i]
    if run and is_run_at(run, place) then
      limit = limit - 1
      waits[i] = limit < 0
    elseif run and run == place or not run and owners[i] == row.attempt then
      startable[#startable + 1] = i
      orders[i] = tonumber(string.match(lines[i] or '', '^%S+ (%d+)')) or 0
    end
  end
  table.sort(startable, function(a, b)
    return orders[a] < orders[b] or orders[a] == orders[b] and a < b
  end)
  for i = math.max(limit, 0) + 1, #startable do
    waits[startable[i]] = true
  end
  return waits
end
