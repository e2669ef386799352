-- Whether any node could ever run a task. Needs lib/fits.lua.
--- @include fits
local FOUND = {} -- {kind -> why not, or false} of this call: most of its tasks are of one kind

local function ask(feasible, names, shapes, name, needs, kind)
  if redis.call('HEXISTS', feasible, kind) == 1 then return nil end
  if redis.call('SCARD', names) > 0 and redis.call('SISMEMBER', names, name) == 0 then return 'unknown' end
  local offers = redis.call('HVALS', shapes)
  local possible = #offers == 0
  for _, offer in ipairs(offers) do
    possible = possible or fits(offer, needs)
  end
  if not possible then return 'infeasible' end
  redis.call('HSET', feasible, kind, 'yes') -- before DEL: a full server refuses the first write, docs/decisions/0015
  if redis.call('HLEN', feasible) > 1000 then redis.call('DEL', feasible) end
  return nil
end

-- misfit: why no node could ever run it: infeasible, or unknown (no node knows that name); nil if one could.
local function misfit(feasible, names, shapes, name, needs)
  local kind = name .. ' ' .. needs
  if FOUND[kind] == nil then FOUND[kind] = ask(feasible, names, shapes, name, needs, kind) or false end
  return FOUND[kind] or nil
end
