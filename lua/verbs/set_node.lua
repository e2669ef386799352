-- set_node: change what a node does about claims, by one word: drain, over, undrain, suspect,
-- trust, leaving, until, ahead or offer. The runs of the node go on.
-- KEYS: meta slots free left changed nodes notes
-- ALSO: events
-- ARGV: channel partition node inc word note
--   inc: '' for any process of that name (an operator), else the incarnation that is meant
--   note: '' for the words undrain, trust and leaving
--     drain: the terms, 'deadline_s=600: TEXT' or 'no deadline: TEXT' ('' is 'no deadline'), for
--     people and the leader
--     over: the terms of the drain whose deadline has passed, or the text of the notice whose time
--     has come, so that the agent ends the runs
--     until: when the node leaves, in ms of the server's clock; 0 withdraws the notice
--     suspect: the reason
--     ahead: how many waiting seats are open
--     offer: 'SCORE OFFER' or 'SCORE capacity=CAPACITY OFFER', as the node's process has them: its
--     pool, its queues or its capacity have changed, what ran behind its slots has ended, or its
--     record is wrong
-- RETURNS: {ok, state, drain} or {gone}; drain is 0, 1, or 2 once its deadline has passed
-- ERRORS: PSARGS PSWORD PSRECORD
-- INVARIANT: the bits of a node that takes no claims are 0. A drain survives the node's restart, a
--   suspicion does not. A node with fewer slots than before gets no claim while it runs as many
--   tasks as it has slots. No claim wins by which a node holds more than its capacity.
-- ATOMICITY: the bits change with the state; the ledger, the count of slots and the span change
--   with the offer and the capacity; the epoch stays if only the capacity changes. If slots or
--   waiting seats open, the scheduler that has waited longest for this partition hears of it.
-- COMPLEXITY: O(span), of offer O(nodes of the partition + span)
--- @include node/free_bits
--- @include node/note
--- @include node/capacity
-- The words of a call that change the node's state or drain; the other words are until, ahead and
-- offer.
local OF_STATE = {drain = 1, over = 1, undrain = 1, suspect = 1, trust = 1, leaving = 1}

-- read_note: return the note of the call. For the word drain, '' is 'no deadline'.
local function read_note()
  if args.note ~= '' then
    return args.note
  end
  return args.word == 'suspect' and 'no reason was given' or 'no deadline'
end

-- bad_note: return the error reply for a drain without terms or a suspicion with terms, or nil.
local function bad_note(note)
  local word = args.word
  if word == 'drain' and not is_terms(note) or word == 'suspect' and is_terms(note) then
    return redis.error_reply("PSARGS 'deadline_s=SECONDS: TEXT' or 'no deadline: TEXT' is the note "
      .. 'of a drain, and of nothing else')
  end
end

-- change_state: change the state and the drain of a node by a word. Returns the new note.
local function change_state(node, word, note, old_note)
  local is_suspect = node.state == 'suspect'
  local new_note = old_note
  if word == 'drain' and (node.drain ~= '2' or old_note ~= note) then
    node.drain = '1'
    new_note = note
  elseif word == 'over' and node.drain == '1' and old_note == note then
    node.drain = '2'
  elseif word == 'undrain' then
    node.drain = '0'
    node.notice = nil
    new_note = ''
  elseif word == 'suspect' and node.state == 'up' and node.drain == '0' then
    node.state = 'suspect'
    new_note = note
  elseif word == 'trust' and node.drain == '0' and not is_terms(old_note) then
    -- The note has the terms of a drain, and the record has no drain: the record was damaged.
    -- repair_partition restores the drain.
    new_note = ''
  end
  if is_suspect and word ~= 'suspect' and word ~= 'over' then
    node.state = 'up'
  end
  if word == 'leaving' and node.state == 'up' then
    node.state = 'leaving'
  end
  return new_note
end

-- change_node: change a node by the word of the call. Returns the new note; or nil and the reply of
-- a call that cannot change the node.
local function change_node(node, note, old_note)
  local word = args.word
  if word == 'until' then
    return old_note, set_notice(node, note, args.inc)
  elseif word == 'over' and node.notice == note then
    node.notice = note .. ',over'
    return old_note
  elseif word == 'ahead' then
    return old_note, open_seats(node, note)
  elseif word == 'offer' then
    return old_note, in_full().take_offer(node, note, args.inc)
  elseif OF_STATE[word] then
    return change_state(node, word, note, old_note)
  end
  return old_note, redis.error_reply(
    'PSWORD drain, over, undrain, suspect, trust, leaving, until, ahead or offer, not ' .. word)
end

-- write_note: write the note of a node, if it has changed.
local function write_note(name, new_note, old_note)
  if new_note == '' then
    redis.call('HDEL', notes, name)
  elseif new_note ~= old_note then
    redis.call('HSET', notes, name, new_note)
  end
end

-- write_change: write a node that has changed, and what follows from its record.
local function write_change(node, old, note)
  local has_new_offer = node.score ~= old.score or node.offer ~= old.offer
  local has_new_capacity = node.capacity ~= old.capacity
  local has_new_state = node.state ~= old.state or node.drain ~= old.drain
    or node.notice ~= old.notice
  if not (has_new_offer or has_new_capacity or has_new_state or node.ahead ~= old.ahead) then
    return
  end
  local free_before = node.first ~= old.first and clear_bits(meta, free, old) or 0
  write_node(nodes, node)
  local opened = write_bits(meta, slots, free, node) - free_before
  tell_change(node, old, note)
  if has_new_offer or has_new_capacity then
    in_full().write_ledger(node)
  end
  if has_new_offer then
    in_full().write_total()
  end
  write_version(meta, changed, node, has_new_offer or has_new_state, has_new_capacity)
  tell_opened(args.channel, args.partition, meta, opened)
end

local note = read_note()
local refusal = bad_note(note)
if refusal then
  return refusal
end
local node = read_node(nodes, args.node)
if not node or (args.inc ~= '' and args.inc ~= node.inc) then
  return {'gone'}
end
refusal = bad_lease(slots, node)
if refusal then
  return refusal
end
local old = read_node(nodes, args.node)
local old_note = redis.call('HGET', notes, node.name) or ''
local new_note, reply = change_node(node, note, old_note)
if reply then
  return reply
end
redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
write_note(node.name, new_note, old_note)
write_change(node, old, note)
return {'ok', node.state, node.drain}
