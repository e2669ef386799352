-- place_text: return the line of `placed` for an attempt: 'p0 n1/3 inc=2 attempt=1@17'.
local function place_text(partition, node, slot, inc, attempt)
  return 'p' .. partition .. ' ' .. node .. '/' .. slot .. ' inc=' .. inc .. ' attempt=' .. attempt
end
