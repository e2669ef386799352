-- Judge whether any node could ever run a task.
--- @include kind/fits

-- judge_offers: return whether some node knows the name, and whether one of these could hold the task when it is empty. A
-- node that does not say which tasks its worker knows takes all of them.
local function judge_offers(offers, name, needs)
  local line, knows, known, possible = '\n' .. name .. ' ', {}, #offers == 0, #offers == 0
  for _, offer in ipairs(offers) do
    local digest = string.match(offer, ' celery%.tasks:(%x+)') or ''
    if knows[digest] == nil then
      knows[digest] = digest == '' or string.find(redis.call('HGET', KEY.names, digest) or '', line, 1, true) ~= nil
    end
    known = known or knows[digest]
    possible = possible or (knows[digest] and fits(offer, needs))
  end
  return known, possible
end

local function ask(name, needs, question)
  local feasible = KEY.feasible
  -- a task routed to a queue waits for a node that consumes it, as with Celery, so the queue does not count
  local offers, anywhere = redis.call('HVALS', KEY.shapes), string.gsub(needs, ' celery%.queue:%S+', '')
  local known, possible = judge_offers(offers, name, anywhere)
  if not known then return 'unknown' end
  if not possible then return 'infeasible' end
  redis.call('HSET', feasible, question, 'yes') -- before DEL: a full server refuses the first write, docs/decisions/0015
  if redis.call('HLEN', feasible) > 1000 then redis.call('DEL', feasible) end
  return false
end

-- misfit: return why no node could ever run tasks of a kind: infeasible, or unknown (no node knows the name); false if one could.
local function misfit(feasible, kind)
  local question = kind.name .. ' ' .. kind.needs
  return redis.call('HEXISTS', feasible, question) == 0 and in_full().ask(kind.name, kind.needs, question)
end
