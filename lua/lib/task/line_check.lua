-- Check the fields of a task's line that a run depends on.
--- @include kind/fits
--- @include kind/waiting
--- @include task/line

-- flaw: return which part of a line is damaged, or nil; the line is nil if its text is no line. A
-- task with a flaw cannot run: it ends as failed.
local function flaw(line)
  if not line then
    return 'line'
  end
  local name, needs, strategy = split_kind(line.kind)
  if not string.find(needs or '', '^slots=%d') or not are_needs(needs) then
    return 'needs'
  end
  if not string.find(name or '', '^[!-~]+$') or #name > 255 then
    return 'name'
  end
  if strategy ~= '' and not STRATEGY[strategy] then
    return 'strategy'
  end
end
