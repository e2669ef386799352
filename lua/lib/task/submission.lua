-- Check the parts of a call of submit that all rows share: the kinds, and the keys that only some
-- calls read.
--- @include kind/ceilings
--- @include kind/feasible
--- @include kind/fits
--- @include kind/index
--- @include kind/shares
--- @include kind/waiting
--- @include task/line_check
--- @include task/order
--- @include task/record
--- @include task/submit_rows

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

-- unknown_limit: return 'nolimit' if the policy does not know one of these limits, else false.
local function unknown_limit(limits)
  local fields = {}
  for name in string.gmatch(limits, '([^,*]+)%*?%d*') do
    fields[#fields + 1] = name
    fields[#fields + 1] = pattern_of(name)
  end
  local texts = redis.pcall('HMGET', KEY.policy, unpack(fields))
  for i = 1, #fields, 2 do
    local text = not texts.err and (texts[i] or texts[i + 1])
    if not text or #text > 4096 then
      return 'nolimit'
    end
  end
  return false
end

-- misfit_of: return why no task of a kind may wait: unknown, infeasible, nolimit; false if it may.
local function misfit_of(feasible, kind)
  if kind.misfit == nil then
    local why = misfit(feasible, kind)
    kind.misfit = why or kind.limits and counting().unknown_limit(kind.limits) or false
  end
  return kind.misfit
end

-- check_call: check the kinds, the number of shards and the apps of the call. Return the reply of a
-- call that creates nothing; or nil and the kinds of read_kinds.
local function check_call(meta, pending_prefix)
  local refusal, kinds_by_number = read_kinds(args.what, pending_prefix)
  if refusal then
    return refusal
  end
  local apps, shards
  refusal, apps, shards = bad_counts(meta, 'apps', 'shards')
  if refusal or count == 0 then
    return refusal or {}
  end
  if shards and shards ~= args.shards then
    return in_full().reply_to_all('elsewhere')
  end
  if COUNTED.submitted > 9e11 then
    return redis.error_reply('PSRECORD ' .. meta .. ' has more in submitted than there are numbers')
  end
  local apps_now = apps and apps ~= '' and apps or '0'
  if args.apps ~= '' and args.apps ~= apps_now then
    return in_full().reply_to_all('changed')
  end
  begin_versions()
  return nil, kinds_by_number
end

-- load_existing: check the types of the keys that only some submissions need and that are read
-- after the first write. Return {id -> record} of the tasks with these ids; or nil and the error
-- reply for a key of another type. options_of: {row -> options}.
local function load_existing(options_of, ids)
  local is_needed = #ids > 0
  for _, options in pairs(options_of) do
    is_needed = is_needed or options.delay or options.expiry
  end
  if not is_needed then
    return {}
  end
  local refusal
  for _, name in ipairs({'kinds', 'shapes', 'feasible', 'names'}) do
    refusal = refusal or bad_type(KEY[name], 'hash')
  end
  for _, name in ipairs({'changed', 'later', 'expires', 'dead'}) do
    refusal = refusal or bad_type(KEY[name], 'zset')
  end
  for _, id in ipairs(ids) do
    refusal = refusal or bad_type(KEY.extra .. id, 'hash')
  end
  if refusal then
    return nil, refusal
  end
  return load_tasks(ids)
end
