-- note_shares: note what share of the nodes tenants hold now, and how much work their slots do;
--   let what they used before fade.
-- KEYS: shares
-- READS: shares
-- ARGV: count keep_s (tenant share half_life_ms work)*
--   keep_s: how long the used shares last unless they are noted again; 0 leaves that as it is
--   tenant: a name, `-` for tasks without one, `a/-` for those of `a` besides its children's
--   share: the largest part of any amount of the nodes that the tenant's tasks hold, from 0 to 1
--   half_life_ms: the time after which past use counts half; 0 keeps no past use
--   work: how much work a slot of the tenant does beside a mean slot, with six decimals. A tenant
--     without past use and with the work 1 is forgotten
-- RETURNS: the number of tenants that have a used share
-- ERRORS: PSARGS
-- INVARIANT: a used share is the mean of the shares that the tenant held, in which what was held a
--   half-life ago counts half. The note before counts until now, for a minute at most; so
--   calls of two leaders, and repeated calls, count no time twice. A text that no script writes is
--   replaced: past use counts anew. 10,000 tenants at most.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count)
--- @include call/batch
--- @include call/clock
local MOST_TENANTS = 10000
local MAX_HELD_MS = 60000
local LEAST_USED = 1e-9

-- check_arguments: return the error reply for a malformed argument, or nil.
local function check_arguments()
  local refusal = bad_number('keep_s', args.keep_s, 0, 946080000)
  for _, row in rows() do
    refusal = refusal or bad_number('half_life_ms', row.half_life_ms, 0, 31536000000)
    if not string.find(row.share, '^[01]%.%d%d?%d?%d?%d?%d?%d?%d?%d?$') then
      refusal = refusal or redis.error_reply('PSARGS share is a part from 0 to 1')
    end
    if not string.find(row.work, '^%d%d?%d?%d?%.%d%d%d%d%d%d$') then
      refusal = refusal or redis.error_reply('PSARGS work is a number with six decimals')
    end
  end
  return refusal
end

-- used_until: return the used share at `now` (ms) by the text that was noted before; 0 for any
-- text that is not a used share.
local function used_until(text, now, half_life_ms)
  local pattern = '^used=([01]%.?%d*) share=([01]%.?%d*) work=%d+%.?%d* at=(%d+)$'
  local used, share, noted_ms = string.match(text or '', pattern)
  if not used or #used > 14 or #share > 14 or #noted_ms > 15 then
    return 0
  end
  local past_ms = math.max(0, now - noted_ms)
  local idle_ms = math.max(0, past_ms - MAX_HELD_MS)
  local faded = 2 ^ (-past_ms / half_life_ms)
  local faded_since_held = 2 ^ (-idle_ms / half_life_ms)
  return used * faded + share * (faded_since_held - faded)
end

-- note_rows: return {tenant, text, ...} of the tenants that are kept, and the tenants to forget. A
-- new tenant gets in while there is room.
local function note_rows(now)
  local names = {}
  for i, row in rows() do
    names[i] = row.tenant
  end
  local texts = read_list(shares, names)
  local room = MOST_TENANTS - redis.call('HLEN', shares)
  local fields = {}
  local forgotten = {}
  for i, row in rows() do
    local half_life_ms = tonumber(row.half_life_ms)
    local used = half_life_ms > 0 and used_until(texts[i], now, half_life_ms) or 0
    local has_use = half_life_ms > 0 and (used >= LEAST_USED or tonumber(row.share) > 0)
    local is_kept = has_use or row.work ~= '1.000000'
    room = room - (is_kept and not texts[i] and 1 or 0)
    if not is_kept then
      forgotten[#forgotten + 1] = row.tenant
    elseif texts[i] or room >= 0 then
      fields[#fields + 1] = row.tenant
      local use = string.format('used=%.12f share=%s', used, row.share)
      fields[#fields + 1] = string.format('%s work=%s at=%.0f', use, row.work, now)
    end
  end
  return fields, forgotten
end

local refusal = check_arguments()
if refusal then
  return refusal
end
local fields, forgotten = note_rows(tonumber(now_ms()))
-- A full server allows a script that begins with HDEL, see docs/decisions/0015.
redis.call('HDEL', shares, '')
write_all('HDEL', shares, forgotten)
write_all('HSET', shares, fields)
if #fields > 0 and tonumber(args.keep_s) > 0 then
  redis.call('EXPIRE', shares, args.keep_s)
end
return redis.call('HLEN', shares)
