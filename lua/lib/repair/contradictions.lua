-- Find well-formed values in a partition that contradict the rest: bits, amounts, counts, and the list of lost nodes. Needs
-- lib/node/free_bits.lua and lib/node/amounts_left.lua.
--- @include node/free_bits
--- @include node/amounts_left

-- bit_at: return a bit of a bitmap that was read as text.
local function bit_at(bits, at)
  local byte = string.byte(bits, math.floor(at / 8) + 1) or 0
  return math.floor(byte / 2 ^ (7 - at % 8)) % 2
end

-- same_amounts: return whether two ledgers have the same amounts.
local function same_amounts(one, other)
  for name, amount in pairs(one) do
    if (other[name] or PARTS[name] and 0) ~= amount then return false end -- a whole amount has no part
  end
  for name in pairs(other) do if not (one[name] or PARTS[name] and other[name] == 0) then return false end end
  return true
end

-- find_wrong_at: report what contradicts one node and its leases, which are sound; return how many of its bits must be 1, and
-- whether all of its bits are right. bits: the text of `free`.
local function find_wrong_at(node, slots, free, left, lost, bits, tell)
  local name, ones, are_right = node.name, 0, true
  local any_lost, rest, held = lost_and_left(slots, node)
  local ledger = redis.call('HGET', left, name)
  if not same_amounts(rest, ledger and amounts(ledger) or {}) then tell(left, name, ledger or 'no amounts') end
  if any_lost and redis.call('SISMEMBER', lost, name) == 0 then tell(lost, name, 'it has lost leases and is not listed') end
  for slot = 0, node.span - 1 do
    local right = (usable(node, slot) and not held[slot]) and 1 or 0
    if bit_at(bits, node.first + slot) ~= right then
      tell(free, name .. '/' .. slot, 'the bit is not ' .. right)
      are_right = false
    end
    ones = ones + right
  end
  return ones, are_right
end

-- find_wrong: report what contradicts the nodes {name -> node} and their leases, which are sound.
local function find_wrong(meta, slots, free, left, lost, found, tell)
  local total, ones, bits, wrong_bits = 0, 0, redis.call('GET', free) or '', false
  for _, node in pairs(found) do
    local own, are_right = find_wrong_at(node, slots, free, left, lost, bits, tell)
    total, ones, wrong_bits = total + node.slots, ones + own, wrong_bits or not are_right
  end
  if not wrong_bits and redis.call('BITCOUNT', free) ~= ones then tell(free, 'bits', 'there are bits of no node') end
  local counts = redis.call('HMGET', meta, 'slots', 'free', 'version', 'epoch', 'inc')
  for i, name in ipairs(next(found) and {'slots', 'free', 'version', 'epoch', 'inc'} or {'slots', 'free'}) do
    local right = ({total, ones})[i]
    local is = counts[i]
    if right and tonumber(is or 0) ~= right or not right and not is then tell(meta, name, is or 'missing') end
  end
end
