-- The line of a streak, the failures in a row of one name on one node, beside what other nodes
-- report of that name:
--   p0 n1 inc=3 since=MS at=MS length=5 tries=2 runs=20 failed=1 all=1 held=MS
-- since: when the streak was first reported; at: its last try
-- length: its failures; tries: reports in which it had gone on
-- runs, failed: runs and failures on other nodes that were counted later
-- all: 1 if nothing else succeeds on the node either
-- held: until when the node holds the name back. A node that does not hold it back lacks the word.

-- parse_streak: return the fields of a line as a table; nil for any other text.
local function parse_streak(text)
  local partition, node, inc, since, at_ms, length, tries, runs, failed, only_failures, hold =
    string.match(text, '^p(%d+) (%w[%w_.@-]*) inc=(%d+) since=(%d+) at=(%d+) length=(%d+) '
      .. 'tries=(%d+) runs=(%d+) failed=(%d+) all=([01])(.*)$')
  local until_ms = partition and string.match(hold, '^ held=(%d+)$')
  if not partition or #partition > 4 or hold ~= '' and not until_ms then
    return nil
  end
  for _, number in ipairs({inc, since, at_ms, length, tries, runs, failed, until_ms}) do
    if #number > 15 then
      return nil
    end
  end
  return {
    partition = partition,
    node = node,
    inc = inc,
    since = since + 0,
    at = at_ms + 0,
    length = length + 0,
    tries = tries + 0,
    runs = runs + 0,
    failed = failed + 0,
    all = only_failures,
    held = hold,
  }
end

-- streak_text: return the line of these fields.
local function streak_text(streak)
  local numbers = string.format('since=%.0f at=%.0f length=%.0f tries=%.0f runs=%.0f failed=%.0f',
    streak.since, streak.at, streak.length, streak.tries, streak.runs, streak.failed)
  return string.format('p%s %s inc=%s %s all=%s%s',
    streak.partition, streak.node, streak.inc, numbers, streak.all, streak.held)
end

-- begin_streak: return a streak of a node that begins now.
local function begin_streak(partition, node, inc, length, now)
  return {partition = partition, node = node, inc = inc, since = now, at = now, length = length,
    tries = 0, runs = 0, failed = 0}
end

-- extend_streak: write the length of a streak. A longer streak is another try, if half a second has
-- passed since the last try.
local function extend_streak(streak, length, now)
  if length > streak.length and now - streak.at >= 500 then
    streak.tries = streak.tries + 1
    streak.at = now
  end
  streak.length = length
end
