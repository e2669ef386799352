-- Devices: a resource that a node has as a set of indexed things with amounts of their own, 'gpu.mem@0=4096 gpu@0=1'. Needs are
-- 'gpu=0.5 gpu.mem=1024', a place names the device. parsync_redis/model/devices.py does the same; a property test compares them.
--- @include node/thousandths

-- device_name: return the kind, the attribute ('' or '.mem') and the index ('' or '0') of a name; nil for any other text.
local function device_name(name)
  local kind = string.match(name, '^%l[%l%d_]*') or ''
  local attribute = string.match(name, '^%.%l[%l%d_]*', #kind + 1) or ''
  local rest = string.sub(name, #kind + #attribute + 1)
  local index = rest == '' and '' or string.match(rest, '^@(%d%d?%d?)$')
  if kind == '' or #kind > 32 or #attribute > 33 or not index then return nil end
  if #index > 1 and string.byte(index) == 48 then return nil end
  return kind, attribute, index
end

-- is_of_devices: return whether needs, or an offer, may have an amount of devices of this name.
local function is_of_devices(name, of_needs)
  local _, attribute, index = device_name(name)
  if of_needs then return index == '' and attribute ~= '' end
  return index ~= nil and index ~= ''
end

-- devices_of: return {kind -> list of indexes} of an offer's amounts, or of what is left.
local function devices_of(left)
  local found = {}
  for name in pairs(left) do
    local kind, index = string.match(name, '^([%l%d_]+)@(%d+)$')
    if kind then
      found[kind] = found[kind] or {}
      found[kind][#found[kind] + 1] = index
    end
  end
  return found
end

-- share_of: return what a task asks of devices of a kind: the share of each, in thousandths; of how many; and the names of the
-- attributes. 0, 0: it asks none. nil: no devices make that amount, as 1.5.
local function share_of(asked, kind)
  local share, attributes, start = (asked[kind] or 0) * 1000 + (asked[kind .. '.'] or 0), {}, kind .. '.'
  for name, amount in pairs(asked) do
    local mine = string.sub(name, 1, #start) == start and not PARTS[name]
    if mine and (amount > 0 or (asked[name .. '.'] or 0) > 0) then attributes[#attributes + 1] = name end
  end
  table.sort(attributes)
  if share >= 1000 then return share % 1000 == 0 and 1000 or nil, share / 1000, attributes end
  if share == 0 and not attributes[1] then return 0, 0, attributes end
  return math.max(share, 1), 1, attributes
end

-- asks_device: return whether a task asks for a device of a kind that an offer has.
local function asks_device(offered, asked)
  for kind in pairs(devices_of(offered)) do
    if share_of(asked, kind) ~= 0 then return true end
  end
  return false
end
