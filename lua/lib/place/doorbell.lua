-- The doorbells of commit: what a node's inbox tells the node.

-- ring_all: put the doorbells of {number of an inbox -> list} into the inboxes, as the first write
-- of a script. No script has read the inboxes before. If an inbox is of another type or the server
-- is full, ring_all undoes what it did and returns the error reply.
local function ring_all(doorbells)
  local written = {}
  for number, texts in pairs(doorbells) do
    local reply = redis.pcall('LPUSH', inbox_at(number), unpack(texts))
    if type(reply) == 'table' then
      for done in pairs(written) do
        redis.call('LTRIM', inbox_at(done), #doorbells[done], -1)
      end
      return reply
    end
    written[number] = true
  end
end
