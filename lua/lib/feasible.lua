-- Judge whether any node could ever run a task. Needs lib/fits.lua.
--- @include fits
local FOUND = {} -- {name and needs -> why not, or false} in this call: most of its tasks have the same

-- judge_offers: return whether some node knows the name, and whether one of these could hold the task when it is empty. A
-- node that does not say which tasks its worker knows takes all of them.
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

local function ask(feasible, names, shapes, name, needs, question)
  if redis.call('HEXISTS', feasible, question) == 1 then return nil end
  -- a task routed to a queue waits for a node that consumes it, as with Celery, so the queue does not count
  local offers, anywhere = redis.call('HVALS', shapes), string.gsub(needs, ' celery%.queue:%S+', '')
  local known, possible = judge_offers(offers, names, name, anywhere)
  if not known then return 'unknown' end
  if not possible then return 'infeasible' end
  redis.call('HSET', feasible, question, 'yes') -- before DEL: a full server refuses the first write, docs/decisions/0015
  if redis.call('HLEN', feasible) > 1000 then redis.call('DEL', feasible) end
  return nil
end

-- misfit: return why no node could ever run a task: infeasible, or unknown (no node knows that name); nil if one could.
local function misfit(feasible, names, shapes, name, needs)
  local question = name .. ' ' .. needs
  if FOUND[question] == nil then FOUND[question] = in_full().ask(feasible, names, shapes, name, needs, question) or false end
  return FOUND[question] or nil
end
