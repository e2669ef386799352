-- doorbell: return the message that points a node's worker to a lease: 'task attempt slots incarnation since'. It carries no
-- work, so that a lost or repeated one costs nothing. No field has a space: submit checks the ids.
local function doorbell(task, attempt, slots, inc, since)
  return task .. ' ' .. attempt .. ' ' .. slots .. ' ' .. inc .. ' ' .. since
end
