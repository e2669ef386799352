-- Check the fields of a task's record that a run depends on. Needs lib/fits.lua.
--- @include fits

-- flaw: return which of these fields is corrupt, or nil. A task with a flaw cannot run: it ends as failed.
local function flaw(attempt, needs, name)
  if not string.find(attempt or '', '^%d%d?%d?%d?%d?%d?%d?%d?%d?@%d%S*$') then return 'attempt' end
  if not string.find(needs or '', '^slots=%d') or not well_formed(needs) then return 'needs' end
  if not string.find(name or '', '^[!-~]+$') or #name > 255 then return 'name' end
end

-- order_text: return a record's place in the order of its kind; a task with a corrupt one goes first.
local function order_text(order)
  return order and string.find(order, '^%d+$') and #order < 16 and order or '0'
end
