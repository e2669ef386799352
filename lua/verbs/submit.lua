-- submit: create each task once, pending; or say why not.
-- KEYS: meta kinds changed feasible tasks messages ended ended_1 ended_2 pending:
-- ALSO: later shapes names expires dead taken running extra:
-- READS: meta kinds tasks taken running ended ended_1 ended_2 later shapes feasible names expires dead messages changed
-- ARGV: count channel shards apps what (id kind options message)*
--   shards: as the caller knows; apps: `apps` of meta when the caller read what the apps declare, '' if it did not; what: lines
--   'PRIORITY NAME NEEDS[ STRATEGY]', one for all equal tasks of the call; kind: the number of such a line; options: see
--   lib/task/submit_rows.lua
-- RETURNS: (row, word)* of tasks that were not submitted: exists, infeasible, unknown (no node knows that name), next, stale;
--   or changed (the apps are others now), or elsewhere (the queue has another number of shards), for every row
-- ERRORS: PSARGS
-- INVARIANT: a publication is one task however often it is submitted; a pending task is in the queue of its kind or in
--   `later`, no other task is. A successor with another name or other needs than its task is judged as a new task is.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(log pending) per task; O(nodes) for the first task of its needs and name after the nodes changed.
--- @include task/resubmission
--- @include kind/feasible
--- @include task/transitions
--- @include task/submit_rows
--- @include task/submission
local what, bad, stamp, shards = kinds_of(args.what, pending_prefix)
if not bad then bad, stamp, shards = bad_counts(meta, 'apps', 'shards') end
if bad or count == 0 then return bad or {} end
if shards and shards ~= args.shards then return in_full().for_all('elsewhere') end
if args.apps ~= '' and args.apps ~= (stamp ~= '' and stamp or '0') then return in_full().for_all('changed') end
local ids, asked, again, reply = {}, {}, {}, {} -- asked: the options of rows that have some
for i, row in rows() do
  ids[i] = row.id
  if row.options ~= '' or not what[row.kind] or is_unusual(ids[i]) then
    asked[i], bad = in_full().look_at_row(what[row.kind], ids[i], row.options)
    if bad then return bad end
  end
end
local known, over = redis.call('HMGET', tasks, unpack(ids)), redis.call('HMGET', ended, unpack(ids))
local over_1, over_2 = redis.call('HMGET', ended_1, unpack(ids)), redis.call('HMGET', ended_2, unpack(ids))
for i = 1, count do
  known[i] = known[i] or over[i] or over_1[i] or over_2[i]
  if known[i] and asked[i] then again[#again + 1] = ids[i] end
end
redis.call('HEXISTS', messages, '') -- reads each key before the first write
local found, now = {}, now_ms()
if next(asked) then found, bad = in_full().look_again(asked, again) end
if bad then return bad end
local last, lines, texts, created, n = COUNTED.submitted, {}, {}, {}, 0
if last > 9e11 then return redis.error_reply('PSRECORD ' .. meta .. ' has more in submitted than there are numbers') end
for i, row in rows() do
  local id, options, kind, word = ids[i], asked[i], what[row.kind], nil
  if created[id] then
    word = options and options.after and 'stale' or 'exists'
  elseif known[i] then
    word = not options and 'exists' or options and in_full().word_of(found[id], options)
  end
  local judged = not word or word == 'next' and in_full().asks_anew(found[id], kind)
  if judged and not (options and options.wait == '1') then
    if kind.misfit == nil then kind.misfit = misfit(feasible, kind) end
    word = kind.misfit or word
  end
  if word then
    if word == 'next' then
      in_full().write_next(found[id], kind, options, row.message, now)
    end
    reply[#reply + 1], reply[#reply + 2] = i, word
  else
    local due, kept = nil, '-'
    if options then due, kept = in_full().timing(id, options, now, known[i]) end
    last, created[id], n = last + 1, true, n + 2
    local at = kind.base + last
    local order = string.format('%d', at)
    if not due then enter(kind.kind, id, order, at) end
    lines[n - 1], texts[n - 1], texts[n] = id, id, row.message
    lines[n] = string.format('0@%d %s %s %s %s %s', last, order, due or now, now, kept, kind.kind)
  end
end
if n > 0 then
  local began = write_kinds(meta, kinds, changed)
  redis.call('HINCRBY', meta, 'submitted', n / 2)
  redis.call('HSET', messages, unpack(texts))
  redis.call('HSET', tasks, unpack(lines))
  if began then wake(args.channel, meta) end
end
if next(asked) then in_full().write_asked() end
return reply
