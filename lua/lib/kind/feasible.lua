-- Judge whether any node could ever run a task.
--- @include kind/fits
local POSSIBLE = {} -- name and needs -> true, of tasks that a node could run, as this call knows

-- judge_offers: return whether a node knows the name, and whether such a node could hold the task
-- when the node is empty. A node that does not say which tasks its worker knows counts as knowing
-- all names.
local function judge_offers(offers, name, needs)
  local line_start = '\n' .. name .. ' '
  local is_known = #offers == 0
  local is_possible = #offers == 0
  local has_name = {} -- digest -> whether its text has the name
  for _, offer in ipairs(offers) do
    local digest = string.match(offer, ' celery%.tasks:(%x+)') or ''
    if has_name[digest] == nil then
      local names = digest ~= '' and redis.call('HGET', KEY.names, digest) or ''
      has_name[digest] = digest == '' or string.find(names, line_start, 1, true) ~= nil
    end
    is_known = is_known or has_name[digest]
    is_possible = is_possible or (has_name[digest] and fits(offer, needs))
  end
  return is_known, is_possible
end

-- judge_kind: return why no node could ever run tasks of a kind: 'unknown' (no node knows the name)
-- or 'infeasible' (no node offers what the kind needs). If a node could run them, return false and
-- note the answer to `question` in `feasible`. The Celery queue of a task does not count: the task
-- waits for a node that consumes the queue, as with Celery.
local function judge_kind(name, needs, question)
  local offers = redis.call('HVALS', KEY.shapes)
  local needs_anywhere = string.gsub(needs, ' celery%.queue:%S+', '')
  local is_known, is_possible = judge_offers(offers, name, needs_anywhere)
  if not is_known then
    return 'unknown'
  end
  if not is_possible then
    return 'infeasible'
  end
  -- HSET before DEL: a full server refuses the first write (docs/decisions/0015).
  redis.call('HSET', KEY.feasible, question, 'yes')
  if redis.call('HLEN', KEY.feasible) > 1000 then -- a full cache begins anew
    redis.call('DEL', KEY.feasible)
  end
  return false
end

-- misfit: return why no node could ever run tasks of a kind: infeasible, or unknown (no node knows
-- the name); false if a node could.
local function misfit(feasible, kind)
  local question = kind.name .. ' ' .. kind.needs
  local why = not POSSIBLE[question] and redis.call('HEXISTS', feasible, question) == 0
    and in_full().judge_kind(kind.name, kind.needs, question)
  POSSIBLE[question] = not why
  return why
end
