-- What of a task's record a run rests on. Needs lib/fits.lua.
--- @include fits

-- flaw: which of these fields no script can have written, or nil. A task with a flaw cannot run: it ends as failed.
local function flaw(attempt, needs)
  if not string.find(attempt or '', '^%d%d?%d?%d?%d?%d?%d?%d?%d?@%S+$') then return 'attempt' end
  if not string.find(needs or '', '^slots=%d') or not well_formed(needs) then return 'needs' end
end
