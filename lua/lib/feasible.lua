-- Whether any node could ever run a task. Needs lib/fits.lua.
--- @include fits
local FOUND = {} -- {kind -> why not, or false} of this call: most of its tasks are of one kind

-- judge_offers: whether some node knows the name, and whether one of these could hold the task when it is empty. A node
-- that says nothing of the tasks that its worker knows takes them all.
local function judge_offers(offers, names, name, needs)
  local line, knows, known, possible = '\n' .. name .. ' ', {}, #offers == 0, #offers == 0
  for _, offer in ipairs(offers) do
    local digest = string.match(offer, ' celery%.tasks:(%x+)') or ''
    if knows[digest] == nil then
      knows[digest] = digest == '' or string.find(redis.call('HGET', names, digest) or '', line, 1, true) ~= nil
    end
    known = known or knows[digest]
    possible = possible or (knows[digest] and fits(offer, needs))
  end
  return known, possible
end

local function ask(feasible, names, shapes, name, needs, kind)
  if redis.call('HEXISTS', feasible, kind) == 1 then return nil end
  -- a task that was routed to a queue waits for a node that consumes it, as with Celery: that is no reason to refuse it
  local offers, anywhere = redis.call('HVALS', shapes), string.gsub(needs, ' celery%.queue:%S+', '')
  local known, possible = judge_offers(offers, names, name, anywhere)
  if not known then return 'unknown' end
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
