-- Chooses among tasks that may start: the first in the queue's order do. Needs the key tasks.

-- beyond: return {row -> true} of the rows that wait, because `most` others run or come first. At most `most` may run, even if
-- more have started because replies were lost. texts: the doorbells as text.
local function beyond(most, ids, attempts, texts, owners, held)
  local orders, able, waits = {}, {}, {}
  for i, line in ipairs(redis.call('HMGET', KEY.tasks, unpack(ids))) do
    local run = held[i]
    if run and string.sub(run, 1, #texts[i] + 9) == texts[i] .. ' started=' then
      most = most - 1
      waits[i] = most < 0
    elseif run and run == texts[i] or not run and owners[i] == attempts[i] then
      able[#able + 1], orders[i] = i, tonumber(string.match(line or '', '^%S+ (%d+)')) or 0
    end
  end
  table.sort(able, function(a, b) return orders[a] < orders[b] or orders[a] == orders[b] and a < b end)
  for at = math.max(most, 0) + 1, #able do waits[able[at]] = true end
  return waits
end
