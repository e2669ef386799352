-- The record of a node, one readable line in the `nodes` hash:
--   up inc=3 drain=0 first=0 span=4 score=9.5 slots=4 gpu=2 gpu_model:a100
-- state: up, suspect (alive, but it did not start its tasks), leaving or down
-- inc: the incarnation
-- drain: 0, 1, or 2 once the deadline of the drain has passed
-- first, span: the bits of the node are first to first+span-1
-- slots: here the offer begins
-- Behind span, `ahead=3` says that three waiting seats behind the slots are open, and `ahead=-2`
-- that the last two slots are shut, because the pool or the capacity has no room for them, or what
-- runs behind the slots has their room. Other nodes without waiting seats lack the word.
-- `capacity=slots=6,mem=4096`, behind that, says what the node can give now of the amounts of which
-- it offers more. A '?' behind it says that the source of the capacity fails: its last text stands.
-- `until=1795806395734,own`, behind that, is the notice of a node that leaves (node/notice.lua).
--- @include node/notice

-- is_capacity: return whether a text is what `capacity=` says.
local function is_capacity(text)
  local words = string.match(text, '^(.-)%??$')
  if words == '' then
    return text == '?'
  end
  if string.find(',' .. words .. ',', ',,', 1, true) then
    return false
  end
  for word in string.gmatch(words, '[^,]+') do
    local whole, part = string.match(word, '^%l[%l%d_.@]*=(%d+)(.*)$')
    if not whole or #whole > 16 or part ~= '' and not string.find(part, '^%.%d%d?%d?$') then
      return false
    end
  end
  return true
end

-- parse_node: return the record as a table, nil for any other text. Sizes are bounded, so that no
-- loop over a span is long.
local function parse_node(name, text)
  if #text > 140000 then -- an offer and a capacity have 65,536 bytes each at most
    return nil
  end
  local state, inc, drain, first, span, suffix =
    string.match(text, '^(%l+) inc=(%d+) drain=([012]) first=(%d+) span=(%d+)( .*)$')
  local ahead, behind = string.match(suffix or '', '^ ahead=(%-?%d%d?%d?%d?%d?)( .*)$')
  suffix = behind or suffix or ''
  local capacity, after_capacity = string.match(suffix, '^ capacity=(%S+)( .*)$')
  suffix = after_capacity or suffix
  local notice, tail = string.match(suffix, '^ until=(%d+[,a-z]*)( .*)$')
  local score, offer = string.match(tail or suffix, '^ score=([%d.e+-]+) ([^\n]*)$')
  local slots = string.match((offer or '') .. ' ', '^slots=(%d+) ')
  if not slots or not tonumber(score) or #inc > 15 or #first > 8 or #span > 5 then
    return nil
  end
  if notice and not is_notice(notice) then
    return nil
  end
  local is_known = string.find(' up suspect leaving down ', ' ' .. state .. ' ', 1, true)
  local open = slots + (ahead or 0)
  if capacity and not is_capacity(capacity) then
    return nil
  end
  local given = string.match(',' .. (capacity or ''), ',slots=(%d+)')
  if given and open > tonumber(given) then
    return nil
  end
  if open < 0 or open > tonumber(span) or slots + 0 > tonumber(span) or not is_known then
    return nil
  end
  return {
    name = name,
    state = state,
    inc = inc,
    drain = drain,
    first = tonumber(first),
    span = tonumber(span),
    score = score,
    offer = offer,
    slots = tonumber(slots),
    ahead = tonumber(ahead),
    notice = notice,
    capacity = capacity,
  }
end

-- read_node: return the record of a node, nil if the node has no readable record.
local function read_node(nodes, name)
  return parse_node(name, redis.call('HGET', nodes, name) or '')
end

-- bad_node: return the error reply for a node with an unreadable record, or nil.
local function bad_node(nodes, name)
  if redis.call('HEXISTS', nodes, name) == 1 and not read_node(nodes, name) then
    return redis.error_reply(string.format('PSRECORD %s has at %s what is no node', nodes, name))
  end
end

-- write_node: write the record of a node.
local function write_node(nodes, node)
  local ahead = node.ahead and string.format(' ahead=%d', node.ahead) or ''
  local capacity = node.capacity and ' capacity=' .. node.capacity or ''
  local notice = node.notice and ' until=' .. node.notice or ''
  redis.call('HSET', nodes, node.name, string.format(
    '%s inc=%s drain=%s first=%d span=%d%s%s%s score=%s %s', node.state, node.inc, node.drain,
    node.first, node.span, ahead, capacity, notice, node.score, node.offer))
end

-- usable: return whether a slot or waiting seat may be claimed when it has no lease.
local function usable(node, slot)
  return node.state == 'up' and node.drain == '0' and slot < node.slots + (node.ahead or 0)
    and not is_over(node)
end

-- open_bits: return the first bit of a node that takes claims, and the number of its slots and open
-- waiting seats. Return nil for any other text.
local function open_bits(text)
  local first, ahead, slots = string.match(text,
    '^up inc=%d+ drain=0 first=(%d+) span=%d+%f[%D]( ?[ahed=%d-]*) score=%S+ slots=(%d+)')
  if first and #first < 9 and #slots < 6 then
    return first + 0, slots + (string.match(ahead, '^ ahead=(%-?%d+)$') or 0)
  end
  if string.find(text, ' capacity=', 1, true) or string.find(text, ' until=', 1, true) then
    local node = in_full().parse_node('', text)
    if node and node.state == 'up' and node.drain == '0' and not in_full().is_over(node) then
      return node.first, node.slots + (node.ahead or 0)
    end
  end
end
