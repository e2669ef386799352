-- Bits of a bitmap by their positions, many with one command.

-- read_bits: return the bits of a bitmap at these positions, in their order; it raises an error for a text that is no position.
local function read_bits(free, bits)
  local found = {}
  for from = 1, #bits, 500 do
    local ops, o = {}, 0
    for at = from, math.min(from + 499, #bits) do
      ops[o + 1], ops[o + 2], ops[o + 3] = 'GET', 'u1', bits[at]
      o = o + 3
    end
    local some = redis.call('BITFIELD', free, unpack(ops))
    if #bits <= 500 then return some end
    for _, bit in ipairs(some) do found[#found + 1] = bit end
  end
  return found
end

-- write_bits_at: set bits of a bitmap: {'SET', 'u1', bit, 0 or 1, ...}.
local function write_bits_at(free, ops)
  for at = 1, #ops, 1000 do redis.call('BITFIELD', free, unpack(ops, at, math.min(at + 999, #ops))) end
end
