-- The amounts that a task holds on a node: those of its needs, with single devices in the place of
-- kinds of devices.
--- @include node/devices

-- rank_device: return what a device has left, as a list that is_fuller compares: the thousandths of
-- the device, each attribute and its thousandths, and the index. Also return whether the device has
-- enough left for a task.
local function rank_device(available, needed, kind, index, share, attributes)
  local name = kind .. '@' .. index
  local rank = {available[name] * 1000 + (available[name .. '.'] or 0)}
  local suffices = rank[1] >= share
  for _, attribute in ipairs(attributes) do
    local whole = available[attribute .. '@' .. index] or 0
    local part = available[attribute .. '@' .. index .. '.'] or 0
    local whole_needed = needed[attribute]
    local part_needed = needed[attribute .. '.'] or 0
    if whole < whole_needed or whole == whole_needed and part < part_needed then
      suffices = false
    end
    rank[#rank + 1] = whole
    rank[#rank + 1] = part
  end
  rank[#rank + 1] = tonumber(index)
  rank.index = index
  return rank, suffices
end

-- is_fuller: return whether the device of a rank has less left than the device of another rank.
local function is_fuller(rank, other_rank)
  for i = 1, #rank do
    if rank[i] ~= other_rank[i] then
      return rank[i] < other_rank[i]
    end
  end
  return false
end

-- put_amount: write an amount that a task holds; `part` has its thousandths or is nil.
local function put_amount(held_amounts, name, whole, part)
  held_amounts[name] = whole
  if part then
    held_amounts[name .. '.'] = part
    PARTS[name .. '.'] = true
  end
end

-- choose_devices: add to `held_amounts` the devices of a kind that a task gets: the fullest devices
-- that still have enough. Return whether there are enough devices.
local function choose_devices(available, needed, kind, indexes, held_amounts)
  local share, count, attributes = share_of(needed, kind)
  if not share then
    return false
  end
  local fitting = {}
  for _, index in ipairs(count > 0 and indexes or {}) do
    local rank, suffices = rank_device(available, needed, kind, index, share, attributes)
    if suffices then
      fitting[#fitting + 1] = rank
    end
  end
  if #fitting < count then
    return false
  end
  table.sort(fitting, is_fuller)
  for i = 1, count do
    local suffix = '@' .. fitting[i].index
    if share == 1000 then
      put_amount(held_amounts, kind .. suffix, 1)
    else
      put_amount(held_amounts, kind .. suffix, 0, share)
    end
    for _, attribute in ipairs(attributes) do
      put_amount(held_amounts, attribute .. suffix, needed[attribute], needed[attribute .. '.'])
    end
  end
  return true
end

-- hold: return the amounts that a task would hold on a node, with single devices; nil if the node
-- has too little left. available: what the node has left; needed: what the task asks for.
local function hold(available, needed)
  local devices = devices_of(available)
  local kinds = {}
  local held_amounts = {}
  for name, amount in pairs(needed) do
    local kind = string.match(name, '^[%l%d_]+')
    if devices[kind] then
      kinds[kind] = true
    else
      held_amounts[name] = amount
    end
  end
  if not is_enough(available, held_amounts) then
    return nil
  end
  for kind in pairs(kinds) do
    if not choose_devices(available, needed, kind, devices[kind], held_amounts) then
      return nil
    end
  end
  return held_amounts
end
