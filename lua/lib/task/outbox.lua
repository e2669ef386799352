-- The outbox: tasks that ended where no worker saw it.
--- @include call/batch
local TOLD = {} -- the lines that go to the outbox

-- to_outbox: queue the result of a task that ended where no worker saw it, for an agent to tell the result backend.
local function to_outbox(id, state, why) TOLD[#TOLD + 1] = id .. ' ' .. state .. ' ' .. why end

-- write_outbox: write the lines of this call. The newest 10,000 stay.
local function write_outbox(outbox)
  if #TOLD == 0 then return end
  write_all('LPUSH', outbox, TOLD)
  redis.call('LTRIM', outbox, 0, 9999)
end
