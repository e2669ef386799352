-- Bits of `free`, the bitmap of a partition, by their positions, many with one command.

-- read_bits: return the bits of a bitmap at these positions, in their order. Raises an error for a
-- text that is no position.
local function read_bits(free_key, positions)
  local bits = {}
  for from = 1, #positions, 500 do
    local operations = {}
    local size = 0
    for i = from, math.min(from + 499, #positions) do
      operations[size + 1] = 'GET'
      operations[size + 2] = 'u1'
      operations[size + 3] = positions[i]
      size = size + 3
    end
    local chunk = redis.call('BITFIELD', free_key, unpack(operations))
    if #positions <= 500 then
      return chunk
    end
    for _, bit in ipairs(chunk) do
      bits[#bits + 1] = bit
    end
  end
  return bits
end

-- write_bits_at: set bits of the bitmap; operations: {'SET', 'u1', position, 0 or 1, ...}.
local function write_bits_at(free_key, operations)
  for from = 1, #operations, 1000 do
    redis.call('BITFIELD', free_key, unpack(operations, from, math.min(from + 999, #operations)))
  end
end
