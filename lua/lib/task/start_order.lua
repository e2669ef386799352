-- Choose among tasks that may start: the first in the queue's order do. Rows: those of start.
--- @include task/line

-- choose_waiting: return {row -> true} of the rows that wait, because `limit` tasks run or come
-- first. At most `limit` tasks may run, even if more have started because replies were lost.
-- ids, owners, runs: of all rows, see start.
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
