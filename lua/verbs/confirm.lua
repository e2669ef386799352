-- confirm: mark a task whose claim was committed as placed.
-- KEYS: taken running
-- READS: taken running
-- ARGV: count (id attempt text)*
--   text: the lease, '1@17... p0 n1/3 inc=1 since=MS' behind the id
-- RETURNS: (row, word)* of tasks that were not marked: yours (it has that place already, perhaps it even runs), stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken, by this attempt, gets a place.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
local ids, reply, confirmed, runs, got, w = {}, {}, {}, {}, {}, 0
for i, row in rows() do ids[i] = row.id end
if count == 0 then return reply end
local owners, held = redis.call('HMGET', taken, unpack(ids)), redis.call('HMGET', running, unpack(ids))
for i, row in rows() do
  local id, text = ids[i], row.text
  local run = got[id] or held[i]
  if not got[id] and owners[i] == row.attempt then
    w = w + 1
    confirmed[w], runs[2 * w - 1], runs[2 * w], got[id] = id, id, text, text
  else
    local same = run and (run == text or string.sub(run, 1, #text + 9) == text .. ' started=')
    reply[#reply + 1], reply[#reply + 2] = i, same and 'yours' or 'stale'
  end
end
if w > 0 then
  redis.call('HDEL', taken, unpack(confirmed)) -- first: a full server allows it, docs/decisions/0015
  redis.call('HSET', running, unpack(runs))
end
return reply
