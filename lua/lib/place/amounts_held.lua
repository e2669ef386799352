-- The amounts that a task holds on a node: those of its needs, with single devices in the place of kinds of devices.
--- @include node/devices

-- choose: add to `held` the devices of a kind that a task gets: the fullest that still have enough. Return whether there are.
local function choose(left, asked, kind, indexes, held)
  local share, count, attributes = share_of(asked, kind)
  if not share then return false end
  local fitting = {}
  for _, index in ipairs(count > 0 and indexes or {}) do
    local name = kind .. '@' .. index
    local has = {left[name] * 1000 + (left[name .. '.'] or 0)}
    local enough = has[1] >= share
    for _, attribute in ipairs(attributes) do
      local whole, part = left[attribute .. '@' .. index] or 0, left[attribute .. '@' .. index .. '.'] or 0
      local most, rest = asked[attribute], asked[attribute .. '.'] or 0
      enough = enough and (whole > most or whole == most and part >= rest)
      has[#has + 1], has[#has + 2] = whole, part
    end
    has[#has + 1], has.index = tonumber(index), index
    if enough then fitting[#fitting + 1] = has end
  end
  if #fitting < count then return false end
  table.sort(fitting, function(a, b)
    for i = 1, #a do
      if a[i] ~= b[i] then return a[i] < b[i] end
    end
    return false
  end)
  for i = 1, count do
    local at, whole = '@' .. fitting[i].index, share == 1000
    held[kind .. at] = whole and 1 or 0
    if not whole then held[kind .. at .. '.'], PARTS[kind .. at .. '.'] = share, true end
    for _, attribute in ipairs(attributes) do
      held[attribute .. at] = asked[attribute]
      if asked[attribute .. '.'] then
        held[attribute .. at .. '.'], PARTS[attribute .. at .. '.'] = asked[attribute .. '.'], true
      end
    end
  end
  return true
end

-- hold: return the amounts that a task would hold of those left on a node; nil if these are too little.
local function hold(left, asked)
  local devices, kinds, held = devices_of(left), {}, {}
  for name, amount in pairs(asked) do
    local kind = string.match(name, '^[%l%d_]+')
    if devices[kind] then kinds[kind] = true else held[name] = amount end
  end
  if not is_enough(left, held) then return nil end
  for kind in pairs(kinds) do
    if not choose(left, asked, kind, devices[kind], held) then return nil end
  end
  return held
end
