-- Check the parts of a call of submit that all rows share: the kinds, and the keys that only some
-- calls read.
--- @include kind/ceilings
--- @include kind/feasible
--- @include kind/index
--- @include task/kind_check
--- @include task/record
--- @include task/submit_rows

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
