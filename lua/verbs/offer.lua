-- offer: tell submit what a node offers, which tasks the node's worker knows and which limits its
-- app declares, or forget the node.
-- KEYS: meta kinds changed shapes feasible names apps
-- ALSO: accounts policy holders:
-- READS: meta
-- ARGV: channel node offer digest tasks
--   offer: '' for a node that is gone
--   digest: the digest that the offer has as celery.tasks; '' for a node that does not say which
--     tasks its worker knows
--   tasks: the text of the digest (model/apps.py), or ''
-- RETURNS: 1 if the offers or the known tasks changed, else 0
-- ERRORS: PSARGS
-- INVARIANT: a limit that the text declares has a ceiling in `policy` before a task of the app is
--   judged. `names` has the text of each digest that an offer in `shapes` has, and of no other
--   digest. `apps` has the newest digest last. Each change of `apps` gives meta another stamp: the
--   time, in ms, or one more than the last stamp, and the digests that came and went. So a stamp
--   does not come back after lost writes. `feasible` has only kinds that an offer fits.
-- ATOMICITY: the offer and the names change together with the deletion of earlier answers.
-- COMPLEXITY: O(1); O(nodes) when a node's digest changes; O(ceilings) if the app declares limits
--- @include call/clock
--- @include cluster/wake
--- @include kind/policy

-- write_offer: write or delete the offer of the node; return whether the offer changed.
local function write_offer(offer_before)
  if args.offer == '' then
    return redis.call('HDEL', shapes, args.node) == 1
  end
  if args.offer == offer_before then
    return false
  end
  redis.call('HSET', shapes, args.node, args.offer)
  return true
end

-- add_digest: write the digest of the offer and its text; return whether the digest is new.
local function add_digest()
  local has_new_text = redis.call('HSETNX', names, args.digest, args.tasks) == 1
  if not has_new_text and redis.call('ZSCORE', apps, args.digest) then
    return false
  end
  local newest = redis.call('ZREVRANGE', apps, 0, 0, 'WITHSCORES')
  redis.call('ZADD', apps, (tonumber(newest[2]) or 0) + 1, args.digest)
  return true
end

-- drop_digest: delete a digest that no offer has any more; return whether the digest is deleted.
local function drop_digest(digest)
  for _, offer in ipairs(redis.call('HVALS', shapes)) do
    if string.find(offer, ' celery.tasks:' .. digest, 1, true) then
      return false
    end
  end
  redis.call('HDEL', names, digest)
  redis.call('ZREM', apps, digest)
  return true
end

-- write_stamp: give `apps` another stamp.
local function write_stamp(stamp_before, digest_before)
  local last_ms = stamp_before and string.match(stamp_before, '^(%d+)%f[%D]%.?%x*$') or '0'
  if #last_ms > 15 then
    last_ms = '0'
  end
  local stamp_ms = math.max(last_ms + 1, tonumber(now_ms()))
  redis.call('HSET', meta, 'apps', string.format('%d.%s%s', stamp_ms, args.digest, digest_before))
end

-- register: write the offer, and the digest and the text of the tasks. Return whether the offers or
-- the known tasks changed.
local function register()
  local stamp_before = redis.call('HMGET', meta, 'apps')[1]
  local offer_before = redis.call('HGET', shapes, args.node) or ''
  local digest_before = string.match(offer_before, ' celery%.tasks:(%x+)') or args.digest
  local is_other_offer = write_offer(offer_before)
  local is_added = args.digest ~= '' and add_digest()
  local is_dropped = digest_before ~= args.digest and drop_digest(digest_before)
  if is_added or is_dropped then
    write_stamp(stamp_before, digest_before)
  end
  return is_other_offer or is_added
end

local digest_in_offer = string.match(args.offer, ' celery%.tasks:(%S+)') or ''
if not string.find(args.digest, '^%x*$') or digest_in_offer ~= args.digest then
  return redis.error_reply('PSARGS offer: the digest is not the one in the offer')
end
local refusal, has_new_limits
if string.find(args.tasks, '\n ', 1, true) then
  refusal, has_new_limits = in_full().declare_limits(meta, kinds, changed, args.tasks)
end
if refusal then
  return refusal
end
local is_new = register()
if has_new_limits then
  wake(args.channel, meta)
end
if is_new then
  redis.call('DEL', feasible)
  return 1
end
return 0
