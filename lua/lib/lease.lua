-- The lease of a slot, one readable line in the `slots` hash. A task that holds several slots of a node has its amounts in
-- the lease of the first, its lead:
--   a81f attempt=1@17 inc=3 since=1732161994123 slots=3,4 gpu=1        the lead
--   a81f attempt=1@17 inc=3 since=1732161994123 lead=3                 each of the others

-- parse_lease: return the lease as a table; nil for no lease and for any other text.
local function parse_lease(text)
  local task, attempt, inc, since, rest =
    string.match(text or '', '^(%S+) attempt=(%S+) inc=(%d+) since=(%d+) (.*)$')
  local slots, asked = string.match(rest or '', '^slots=(%d[%d,]*) ?(.*)$')
  local lead = string.match(rest or '', '^lead=(%d+)$')
  if not slots and not lead then return nil end
  return {task = task, attempt = attempt, inc = inc, since = since, slots = slots, asked = asked or '', lead = lead}
end

local function lease_text(task, attempt, inc, since, rest)
  return task .. ' attempt=' .. attempt .. ' inc=' .. inc .. ' since=' .. since .. ' ' .. rest
end
