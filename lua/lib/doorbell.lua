-- doorbell: what tells a node's worker to look at a lease: 'task attempt slots incarnation since'. It carries no work, so
-- that a lost or repeated one costs nothing. No field has a space: ids are checked where they enter.
local function doorbell(task, attempt, slots, inc, since)
  return task .. ' ' .. attempt .. ' ' .. slots .. ' ' .. inc .. ' ' .. since
end
