-- ring_all: put the doorbells of {number of the inbox -> list} into the inboxes, as the first write of a script. Nothing has read
-- the inboxes before: if one is of another type or the server is full, it undoes the others and returns the error reply.
local function ring_all(rung)
  local done = {}
  for at, bells in pairs(rung) do
    local reached = redis.pcall('LPUSH', inbox_at(at), unpack(bells))
    if type(reached) == 'table' then
      for other in pairs(done) do redis.call('LTRIM', inbox_at(other), #rung[other], -1) end
      return reached
    end
    done[at] = true
  end
end
