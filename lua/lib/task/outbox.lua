-- The outbox: results of tasks that ended where no worker saw it, for an agent to tell the result
-- backend.
--- @include call/batch
local OUTBOX = {} -- lines 'ID STATE WHY' of this call

-- to_outbox: queue the result of a task.
local function to_outbox(id, state, why)
  OUTBOX[#OUTBOX + 1] = id .. ' ' .. state .. ' ' .. why
end

-- write_outbox: write the lines of this call. The newest 10,000 stay.
local function write_outbox(outbox)
  if #OUTBOX == 0 then
    return
  end
  write_all('LPUSH', outbox, OUTBOX)
  redis.call('LTRIM', outbox, 0, 9999)
end
