-- write_policy: write the document of the cluster's policy, unless somebody has written another one
-- since the caller read it.
-- KEYS: policy
-- ALSO: events
-- ARGV: version text by changes history
--   version: the version that the caller read; 0 if there is none, or a damaged one
--   text: the document, in TOML
--   by: who changes the policy, for people
--   changes: what changes, in words
--   history: the last versions before this one, as JSON
-- RETURNS: written version by at: 1 if the document was written, else 0; the version that counts
--   now, who wrote that version, and when, ms
-- ERRORS: PSARGS
-- INVARIANT: the version grows with each write. No script reads the document: what counts in a
--   shard is its own key `policy`, which `set_policy` writes before.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1)
--- @include cluster/events

local refusal = bad_number('version', args.version, 0, 1000000000)
if refusal then
  return refusal
end
local stored = redis.call('HMGET', policy, 'version', 'by', 'at')
local number = string.match(stored[1] or '', '^%d%d?%d?%d?%d?%d?%d?%d?%d?$') or '0'
if number ~= args.version then
  return {0, number, stored[2] or '', stored[3] or ''}
end
local version = string.format('%d', args.version + 1)
redis.call('HSET', policy, 'text', args.text, 'version', version, 'by', args.by, 'at', now_ms(),
  'changes', args.changes, 'history', args.history)
note_event('policy', {by = args.by, why = args.changes})
return {1, version, args.by, now_ms()}
