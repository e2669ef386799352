-- Judge taints: parsync.taint:spot of an offer, parsync.taint:old|spot of needs that tolerate both.
-- parsync_redis/model/taints.py
--- @include kind/conditions

-- taints_fit: a rule (lib/kind/fits.lua): the task tolerates each taint of the node.
local function taints_fit(offer, needs)
  if not string.find(offer, ' parsync.taint:', 1, true) then
    return true
  end
  local words = values_of(' ' .. needs .. ' ', 'parsync.taint')
  local tolerated = '|' .. table.concat(words, '|') .. '|'
  for _, taint in ipairs(values_of(' ' .. offer .. ' ', 'parsync.taint')) do
    if not string.find(tolerated, '|' .. taint .. '|', 1, true) then
      return false
    end
  end
  return true
end
