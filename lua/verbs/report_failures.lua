-- report_failures: keep the streaks of a node (failures in a row of one name), and count how often
-- tasks of these names run and fail on other nodes meanwhile.
-- KEYS: streaks dealt
-- READS: streaks
-- ARGV: count partition node inc since all (name runs failed length held)*
--   node: '' drops the lines that are an hour old
--   since: time of the node's last report (ms), where the counts of runs begin; '0' for a first
--     report
--   all: 1 if nothing succeeds on the node
--   runs, failed: numbers since the last report
--   length: failures in a row that the node did not expect, else 0
--   held: for how long the node holds the name back yet (ms), which schedulers obey
-- RETURNS: {now_ms, others, (row, runs, failed)*}
--   others: 1 if the cluster has other nodes, else 0
--   row, runs, failed: for each streak of the node, the runs that other nodes reported of the name
--     since the streak began, and how many of these runs failed
-- ERRORS: PSARGS
-- INVARIANT: 1,000 names with 100 streaks each at most; no claim depends on a streak. A line that
--   no script writes is dropped. A repeated request counts its runs twice. A request that
--   comes late holds a name back longer, by its delay.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count * streaks of the name); O(nodes) for a new streak in a cluster of few nodes
--- @include call/batch
--- @include call/clock
--- @include node/streak
local MOST_NAMES = 1000 -- names that `streaks` has at most
local MOST_STREAKS = 100 -- nodes that have a streak of one name at most
local HOUR_MS = 3600000
local fields = {}
local ended_names = {}
local room = 0 -- how many new names get in

-- check_arguments: return the error reply for a malformed argument, or nil.
local function check_arguments()
  local refusal = bad_number('partition', args.partition, 0, 9999)
  refusal = refusal or bad_number('inc', args.inc, 0, 9e14)
  refusal = refusal or bad_number('since', args.since, 0, 9e14)
  for _, row in rows() do
    refusal = refusal or bad_number('runs', row.runs, 0, 1e9)
    refusal = refusal or bad_number('failed', row.failed, 0, 1e9)
    refusal = refusal or bad_number('length', row.length, 0, 1e9)
    refusal = refusal or bad_number('held', row.held, 0, 1e9)
  end
  if args.node ~= '' and not string.find(args.node, '^%w[%w_.@-]*$') then
    refusal = refusal or redis.error_reply('PSARGS not a node: ' .. args.node)
  end
  return refusal
end

-- read_texts: return the text of the streaks of each name.
local function read_texts()
  local names = {}
  for i, row in rows() do
    names[i] = row.name
  end
  return read_list(streaks, names)
end

-- split_streaks: return the lines of the streaks of other nodes, with the runs of this report, and
-- the streak of this node if the streak goes on.
local function split_streaks(text, row, now)
  local lines = {}
  local own_streak
  for line in string.gmatch(text or '', '[^\n]+') do
    local streak = parse_streak(line)
    if streak and streak.node == args.node then
      if streak.inc == args.inc and tonumber(row.length) >= streak.length then
        own_streak = streak
      end
    elseif streak and now - streak.at < HOUR_MS and #lines < MOST_STREAKS - 1 then
      if tonumber(args.since) >= streak.since then
        streak.runs = streak.runs + row.runs
        streak.failed = streak.failed + row.failed
      end
      lines[#lines + 1] = streak_text(streak)
    end
  end
  return lines, own_streak
end

-- renew_streak: return the streak of this node as the row reports the streak.
local function renew_streak(streak, row, now)
  local length = tonumber(row.length)
  streak = streak or begin_streak(args.partition, args.node, args.inc, length, now)
  extend_streak(streak, length, now)
  streak.all = args.all == '1' and '1' or '0'
  streak.held = tonumber(row.held) > 0 and string.format(' held=%.0f', now + row.held) or ''
  return streak
end

-- merge_row: return the lines of a name after this report, and the streak of this node if there is
-- one.
local function merge_row(text, row, now)
  local lines, streak = split_streaks(text, row, now)
  if row.length == '0' or args.node == '' then
    return lines, nil
  end
  streak = renew_streak(streak, row, now)
  lines[#lines + 1] = streak_text(streak)
  return lines, streak
end

-- put_lines: note the lines of a name for the write at the end. A new name is noted only while
-- there is room.
local function put_lines(name, lines, is_new)
  if is_new and #lines > 0 then
    room = room - 1
  end
  if #lines == 0 then
    ended_names[#ended_names + 1] = name
  elseif not is_new or room >= 0 then
    fields[#fields + 1] = name
    fields[#fields + 1] = table.concat(lines, '\n')
  end
end

-- merge_rows: carry out all rows; add (row, runs, failed) of each streak of this node to the reply.
local function merge_rows(texts, now, reply)
  for i, row in rows() do
    if texts[i] or row.length ~= '0' then
      local lines, streak = merge_row(texts[i], row, now)
      put_lines(row.name, lines, not texts[i])
      if streak then
        reply[#reply + 1] = i
        reply[#reply + 1] = streak.runs
        reply[#reply + 1] = streak.failed
      end
    end
  end
end

-- has_other_nodes: return whether the cluster has other nodes than this node.
local function has_other_nodes()
  if redis.call('HLEN', dealt) >= 100 then -- one node has fewer fields: do not read them all
    return true
  end
  for _, field in ipairs(redis.call('HKEYS', dealt)) do
    if string.sub(field, 1, 5) == 'node:' and field ~= 'node:' .. args.node then
      return true
    end
  end
  return false
end

local refusal = check_arguments()
if refusal then
  return refusal
end
local texts = read_texts()
local now = now_ms()
local reply = {now, 0}
room = MOST_NAMES - redis.call('HLEN', streaks)
merge_rows(texts, now, reply)
if #reply > 2 and has_other_nodes() then
  reply[2] = 1
end
-- HDEL comes first: a full server allows a script that begins with HDEL, see docs/decisions/0015.
redis.call('HDEL', streaks, '', unpack(ended_names, 1, math.min(#ended_names, 1000)))
write_all('HSET', streaks, fields)
return reply
