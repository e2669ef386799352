-- Devices: a resource that a node has as a set of indexed devices with amounts of their own, as in
-- the offer 'gpu.mem@0=4096 gpu@0=1'. Needs name no index, 'gpu=0.5 gpu.mem=1024'; a place does.
-- parsync_redis/model/devices.py does the same; a property test compares the two.
--- @include node/thousandths

-- device_name: split the name of an amount of devices into the kind, the attribute ('' or '.mem')
-- and the index ('' or '0'). Return nil for any other text.
local function device_name(name)
  local kind = string.match(name, '^%l[%l%d_]*') or ''
  local attribute = string.match(name, '^%.%l[%l%d_]*', #kind + 1) or ''
  local suffix = string.sub(name, #kind + #attribute + 1)
  local index = suffix == '' and '' or string.match(suffix, '^@(%d%d?%d?)$')
  if kind == '' or #kind > 32 or #attribute > 33 or not index then
    return nil
  end
  if #index > 1 and string.byte(index) == 48 then
    return nil
  end
  return kind, attribute, index
end

-- is_of_devices: return whether needs, or an offer, may have an amount of devices of this name.
local function is_of_devices(name, of_needs)
  local _, attribute, index = device_name(name)
  if of_needs then
    return index == '' and attribute ~= ''
  end
  return index ~= nil and index ~= ''
end

-- devices_of: return {kind -> list of indexes} of an offer's amounts, or of a ledger.
local function devices_of(ledger)
  local indexes = {}
  for name in pairs(ledger) do
    local kind, index = string.match(name, '^([%l%d_]+)@(%d+)$')
    if kind then
      indexes[kind] = indexes[kind] or {}
      indexes[kind][#indexes[kind] + 1] = index
    end
  end
  return indexes
end

-- share_of: compute what a task asks of the devices of a kind.
-- Returns the share of each device in thousandths, the number of devices, and the sorted names of
-- the attributes. 0.5 gpu is 500, 1; 2 gpu is 1000, 2. The share is 0 if the task asks for no such
-- device, and nil for an amount that whole devices cannot give, such as 1.5.
local function share_of(asked, kind)
  local share = (asked[kind] or 0) * 1000 + (asked[kind .. '.'] or 0)
  local prefix = kind .. '.'
  local attributes = {}
  for name, amount in pairs(asked) do
    local is_attribute = string.sub(name, 1, #prefix) == prefix and not PARTS[name]
    if is_attribute and (amount > 0 or (asked[name .. '.'] or 0) > 0) then
      attributes[#attributes + 1] = name
    end
  end
  table.sort(attributes)
  if share >= 1000 then
    return share % 1000 == 0 and 1000 or nil, share / 1000, attributes
  end
  if share == 0 and not attributes[1] then
    return 0, 0, attributes
  end
  return math.max(share, 1), 1, attributes
end

-- asks_device: return whether a task asks for a device of a kind that an offer has.
local function asks_device(offered, asked)
  for kind in pairs(devices_of(offered)) do
    if share_of(asked, kind) ~= 0 then
      return true
    end
  end
  return false
end
