"""The scripts of the rival *central*, of which one sees all slots and takes the best free slot.

All tasks see the same score of a slot, so a sorted set has the best slot. 50 kinds of task have no
common order: the script walks through the nodes, best first, until a node fits. Records and
doorbells are minimal. The rival promises less than parsync: no leases, no attempts, no repair after
a lost process.
"""

from typing import Final

CENTRAL_PREFIX: Final = "bench:central:"

_SHARED: Final = """
local P = 'bench:central:'
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local function found_slot(id, node, slot)
  redis.call('HSET', P .. 'task:' .. id, 'state', 'placed', 'slot', slot, 'placed_ms', now)
  redis.call('LPUSH', P .. 'inbox:' .. node, id)
end
"""

_BEST_SLOT: Final = """
local function place(id)
  local best = redis.call('ZPOPMAX', P .. 'free')
  if not best[1] then return false end
  found_slot(id, string.match(best[1], '^[^/]+'), best[1])
  return true
end
local function free(id, slot)
  local node = string.match(slot, '^[^/]+')
  redis.call('ZADD', P .. 'free', redis.call('HGET', P .. 'scores', node), slot)
end
"""

_BEST_FIT: Final = """
local function place(id)
  local labels, mem = unpack(redis.call('HMGET', P .. 'task:' .. id, 'labels', 'mem'))
  local from = 0
  while true do
    local nodes = redis.call('ZREVRANGE', P .. 'free', from, from + 99)
    if not nodes[1] then return false end
    local offers = redis.call('HMGET', P .. 'labels', unpack(nodes))
    local left = redis.call('HMGET', P .. 'mem', unpack(nodes))
    for i, node in ipairs(nodes) do
      if offers[i] == labels and tonumber(left[i]) >= tonumber(mem) then
        local slot = redis.call('LPOP', P .. 'slots:' .. node)
        redis.call('HINCRBY', P .. 'mem', node, -mem)
        if redis.call('LLEN', P .. 'slots:' .. node) == 0 then
          redis.call('ZREM', P .. 'free', node)
        end
        found_slot(id, node, slot)
        return true
      end
    end
    from = from + 100
  end
end
local function free(id, slot)
  local node = string.match(slot, '^[^/]+')
  redis.call('RPUSH', P .. 'slots:' .. node, slot)
  redis.call('HINCRBY', P .. 'mem', node, redis.call('HGET', P .. 'task:' .. id, 'mem'))
  redis.call('ZADD', P .. 'free', redis.call('HGET', P .. 'scores', node), node)
end
"""

_SUBMIT: Final = """
for i = 1, #ARGV, 4 do -- id message labels mem
  local id = ARGV[i]
  redis.call('HSET', P .. 'task:' .. id, 'state', 'pending', 'submitted_ms', now,
    'message', ARGV[i + 1], 'labels', ARGV[i + 2], 'mem', ARGV[i + 3])
  if not place(id) then redis.call('RPUSH', P .. 'waiting', id) end
end
redis.call('INCRBY', P .. 'open', #ARGV / 4)
"""

_START: Final = """
local found = {}
for i, id in ipairs(ARGV) do
  local key = P .. 'task:' .. id
  found[i] = redis.call('HGET', key, 'message')
  redis.call('HSET', key, 'state', 'running', 'started_ms', now, 'starts', 1)
end
return found
"""

_FINISH: Final = """
for i, id in ipairs(ARGV) do
  local key = P .. 'task:' .. id
  local slot = redis.call('HGET', key, 'slot')
  redis.call('HSET', key, 'state', 'succeeded', 'finished_ms', now)
  redis.call('EXPIRE', key, 86400)
  free(id, slot)
end
for _ = 1, #ARGV do
  local id = redis.call('LPOP', P .. 'waiting')
  if not id then break end
  if not place(id) then
    redis.call('LPUSH', P .. 'waiting', id)
    break
  end
end
redis.call('DECRBY', P .. 'open', #ARGV)
"""


def scripts(kinds: int) -> dict[str, str]:
    """Return the scripts submit, start and finish, for one kind of task or for many."""
    how = _BEST_SLOT if kinds == 1 else _BEST_FIT
    return {
        "submit": _SHARED + how + _SUBMIT,
        "start": _SHARED + _START,
        "finish": _SHARED + how + _FINISH,
    }
