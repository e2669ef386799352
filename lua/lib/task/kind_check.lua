-- Read and check the kinds of a call of submit.
--- @include kind/fits
--- @include kind/shares
--- @include kind/waiting
--- @include task/line_check
--- @include task/order

-- split_any_kind: return the name and the needs of a kind, which may have a strategy, and its
-- limits, nil for none; or nil and the error reply.
local function split_any_kind(kind)
  if #kind > 12000 then -- bytes: the limit of a kind
    return nil, redis.error_reply('PSARGS a kind has 12,000 bytes at most')
  end
  local name, needs, _, prefer = split_kind(kind)
  if not name or #name > 255 or not string.find(name, '^[!-~]+$') then
    return nil, redis.error_reply('PSARGS the name of a task is printable and has no spaces')
  end
  if not string.find(needs, '^slots=%d') or not are_needs(needs) then
    return nil, redis.error_reply('PSARGS needs are words NAME=N and NAME:CONDITION, slots=N first')
  end
  if prefer and not are_preferences(prefer) then
    return nil, redis.error_reply('PSARGS preferences are prefer=RULE,RULE behind the needs')
  end
  if has_accounts(kind) and not are_accounts(kind) then
    return nil, redis.error_reply('PSARGS a kind ends in for=TENANT under=LIMIT,LIMIT*UNITS')
  end
  local _, _, limits = split_accounts(kind)
  return name, needs, limits
end

-- read_kind: return the fields of a kind; or nil and the error reply.
--   base: what the orders of its tasks have beside the versions of their submissions
--   limits: under which its tasks run, as in the kind; nil for none
--   misfit: why no node could ever run the kind's tasks, once it was judged; see kind/feasible
local function read_kind(priority, kind, pending_prefix)
  local counts = has_accounts(kind)
  local name, needs, limits = string.match(kind, '^([!-~]+) (slots=%d.*)$')
  if counts then
    name, needs, limits = split_counted(kind)
  end
  local is_short = name and #name < 256 and #kind <= 12000
  if not is_short or not counts and not has_only_words(needs, true) then
    name, needs, limits = in_full().split_any_kind(kind)
  end
  local refusal = not name and needs or bad_kind(pending_prefix, kind)
  if refusal then
    return nil, refusal
  end
  local base = base_of(priority)
  return {
    priority = priority,
    base = base,
    kind = kind,
    name = name,
    needs = needs,
    limits = limits,
  }
end

-- read_kinds: read lines 'PRIORITY KIND'. Return an error reply or nil, and {number of the line, as
-- text -> fields of the kind}.
local function read_kinds(text, pending_prefix)
  local kinds_by_number = {}
  local number = 0
  local refusal
  for priority, kind in string.gmatch(text, '(%d) ([^\n]+)') do
    number = number + 1
    if not refusal then
      local fields
      fields, refusal = read_kind(priority, kind, pending_prefix)
      kinds_by_number[string.format('%d', number)] = fields
    end
    if number > 1000 and not refusal then
      refusal = in_full().too_many('submit', 1000)
    end
  end
  return refusal, kinds_by_number
end
