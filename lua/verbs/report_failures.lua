-- report_failures: keep the streaks of a node beside what other nodes report of the same names in the meantime.
-- KEYS: streaks dealt
-- READS: streaks
-- ARGV: count partition node inc since all (name runs failed length held)*
--   since: time of the node's last report (ms), '0' for none: its counts begin there; all: 1 if nothing succeeds
--   there; runs, failed: since the report before; length: failures in a row that the node is surprised by, else 0; held:
--   for how long the node holds the name back yet (ms), which schedulers obey; node '': drop lines that are an hour old
-- RETURNS: {now_ms, others, (row, runs, failed)*}; others: 1 if the cluster has other nodes; of each streak what others reported
-- ERRORS: PSARGS
-- INVARIANT: 1,000 names with 100 streaks each at most; no claim rests on them. A line that no script writes is dropped. A
--   repeated request counts its runs twice, and a late one holds a name back for as long as it is late.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count * streaks of the name); O(nodes) for a new streak in a cluster of few nodes
--- @include call/batch
--- @include call/clock
--- @include node/streak
local bad = bad_number('partition', args.partition, 0, 9999) or bad_number('inc', args.inc, 0, 9e14)
bad = bad or bad_number('since', args.since, 0, 9e14)
local names = {}
for i, row in rows() do
  bad = bad or bad_number('runs', row.runs, 0, 1e9) or bad_number('failed', row.failed, 0, 1e9)
  bad = bad or bad_number('length', row.length, 0, 1e9) or bad_number('held', row.held, 0, 1e9)
  names[i] = row.name
end
if args.node ~= '' and not string.find(args.node, '^%w[%w_.@-]*$') then
  bad = bad or redis.error_reply('PSARGS not a node: ' .. args.node)
end
if bad then return bad end
local texts, now, room = read_list(streaks, names), now_ms(), 1000 - redis.call('HLEN', streaks)
local fields, gone, reply, own = {}, {}, {now, 0}, false

-- merge: return the streaks of a name after this report, and the node's own.
local function merge(text, row)
  local kept, mine = {}, nil
  for line in string.gmatch(text or '', '[^\n]+') do
    local streak = parse_streak(line)
    if streak and streak.node == args.node then
      if streak.inc == args.inc and row.length + 0 >= streak.length then mine = streak end
    elseif streak and now - streak.at < 3600000 and #kept < 99 then
      if args.since + 0 >= streak.since then
        streak.runs, streak.failed = streak.runs + row.runs, streak.failed + row.failed
      end
      kept[#kept + 1] = streak_text(streak)
    end
  end
  if row.length == '0' or args.node == '' then
    return kept
  end
  mine = mine or {partition = args.partition, node = args.node, inc = args.inc, since = now, at = now, length = row.length + 0,
    tries = 0, runs = 0, failed = 0}
  if row.length + 0 > mine.length and now - mine.at >= 500 then mine.tries, mine.at = mine.tries + 1, now end
  mine.length, mine.all = row.length + 0, args.all == '1' and '1' or '0'
  mine.held = row.held + 0 > 0 and string.format(' held=%.0f', now + row.held) or ''
  kept[#kept + 1] = streak_text(mine)
  return kept, mine
end

for i, row in rows() do
  local text = texts[i]
  if text or row.length ~= '0' then
    local kept, mine = merge(text, row)
    if not text and #kept > 0 then room = room - 1 end
    if #kept == 0 then
      gone[#gone + 1] = row.name
    elseif text or room >= 0 then
      fields[#fields + 1], fields[#fields + 2] = row.name, table.concat(kept, '\n')
    end
    if mine then reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], own = i, mine.runs, mine.failed, true end
  end
end
if own and redis.call('HLEN', dealt) < 100 then
  for _, field in ipairs(redis.call('HKEYS', dealt)) do
    if string.sub(field, 1, 5) == 'node:' and field ~= 'node:' .. args.node then reply[2] = 1 end
  end
elseif own then
  reply[2] = 1
end
redis.call('HDEL', streaks, '', unpack(gone, 1, math.min(#gone, 1000))) -- first: a full server allows it, docs/decisions/0015
write_all('HSET', streaks, fields)
return reply
