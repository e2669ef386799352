-- submit: create each task once, pending; or say why not.
-- KEYS: meta kinds changed later shapes feasible names expires dead tasks messages taken running ended ended_1 ended_2 pending: extra:
-- READS: meta kinds tasks taken running ended ended_1 ended_2 later shapes feasible names expires dead messages changed
-- ARGV: count channel what (id kind options message)*
--   what: lines 'PRIORITY NAME NEEDS[ STRATEGY]', one for all equal tasks of the call; kind: the number of such a line, from 1
--   options: words NAME=VALUE, or '': delay and expiry, in ms from now, until it can be taken and until it expires; max, its
--   max_starts; wait=1 lets it wait for capacity that no node has yet; after, the running attempt that submits its own
--   successor (Celery's retry and replace); pub tells one publish of an id from the next: a new publish begins a new life
--   of a task that has ended, and is the successor of one that runs, or has run and waits again. Without pub an id is one
--   task for ever.
-- RETURNS: (row, word)* of tasks that were not submitted: exists, infeasible, unknown (no node knows that name), next, stale
-- ERRORS: PSARGS
-- INVARIANT: a publication is one task however often it is submitted; a pending task is in the queue of its kind or in
--   `later`, no other task is.
-- ATOMICITY: each task by itself; its line and its place in the order of its kind are written together.
-- COMPLEXITY: O(log pending) per task; O(nodes) for the first task of its needs and name after the nodes changed.
--- @include again
--- @include feasible
--- @include queue
--- @include submission
local what, bad = kinds_of(args.what, pending_prefix)
bad = bad or bad_counts(meta)
if bad then return bad end
local ids, asked, timed = {}, {}, false
for i, row in rows() do
  local options, wrong = PLAIN, nil
  if row.options ~= '' then options, wrong = in_full().options_of(row.options) end
  if not what[row.kind] then wrong = redis.error_reply('PSARGS submit: a row names no kind') end
  wrong = wrong or bad_id(row.id, row.message)
  if wrong then return wrong end
  ids[i], asked[i] = row.id, options
  timed = timed or options.delay or options.expiry
end
local known, over, again, reply, now = read_fields(tasks, ids), ended_texts(ids), {}, {}, now_ms()
for i, id in ipairs(ids) do
  if (known[id] or over[id]) and asked[i] ~= PLAIN then again[#again + 1] = id end
end
redis.call('HEXISTS', messages, '') -- reads each key before the first write
bad = (timed or #again > 0) and in_full().bad_timed(again) or nil
if bad then return bad end
local found = #again > 0 and in_full().load_tasks(again)
local last, lines, texts, delays, expiries, renewed, created, n = COUNTED.submitted, {}, {}, {}, {}, {}, {}, 0
for i, row in rows() do
  local id, options, kind, word = ids[i], asked[i], what[row.kind], nil
  if created[id] then
    word = options.after and 'stale' or 'exists'
  elseif known[id] or over[id] then
    word = options == PLAIN and 'exists' or in_full().word_of(found[id], options)
  end
  if word == 'next' then
    local expires_ms = in_full().write_next(found[id], kind, options, row.message, now)
    if expires_ms then expiries[#expiries + 1], expiries[#expiries + 2] = expires_ms, id end
  elseif not word then
    if kind.misfit == nil then kind.misfit = misfit(feasible, names, shapes, kind.name, kind.needs) or false end
    word = options.wait ~= '1' and kind.misfit or nil
    if not word then
      local due, expires_ms, kept = nil, nil, '-'
      if options ~= PLAIN then due, expires_ms, kept = in_full().timing(options, now) end
      if known[id] or over[id] then renewed[#renewed + 1] = id end
      last, created[id], n = last + 1, true, n + 2
      local number, order = string.format('%d', last), string.format('%d', kind.base + last)
      lines[n - 1], texts[n - 1], texts[n] = id, id, row.message
      lines[n] = '0@' .. number .. ' ' .. order .. ' ' .. (due or now) .. ' ' .. now .. ' ' .. kept .. ' ' .. kind.kind
      if due then delays[#delays + 1], delays[#delays + 2] = due, id else enter(kind.kind, id, order) end
      if expires_ms then expiries[#expiries + 1], expiries[#expiries + 2] = expires_ms, id end
    end
  end
  if word then reply[#reply + 1], reply[#reply + 2] = i, word end
end
if #lines > 0 then
  local began = write_kinds(meta, kinds, changed, {'submitted', string.format('%d', last)})
  write_all('HSET', messages, texts)
  write_all('HSET', tasks, lines)
  if began then in_full().wake(args.channel, meta) end
end
write_all('ZADD', later, delays)
write_all('ZADD', expires, expiries)
for _, id in ipairs(renewed) do in_full().forget(id) end
return reply
