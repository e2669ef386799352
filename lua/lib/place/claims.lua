-- Read the rows of commit into lists.

-- add_words: append the words of a text to a list. Stops when the list has more than `limit`
-- entries; no sound call has so many.
local function add_words(list, text, limit)
  if not string.find(text, ' ', 1, true) then -- most texts are one word
    list[#list + 1] = text
    return
  end
  for word in string.gmatch(text, '%S+') do
    list[#list + 1] = word
    if #list > limit then
      break
    end
  end
end

-- read_claims: return the error reply for a claim that is not well formed; or nil and
--   the seats of all claims, in one list, and their bits
--   {row -> position of its first seat in the list}, with one entry more for the end of the list
--   {row -> node} of the claims that ask for amounts
local function read_claims()
  local find = string.find
  local seats = {}
  local bits = {}
  local first_seats = {}
  local nodes = {}
  local size = 0
  for i, row in rows() do
    local seat = row.seats
    local text = row.text
    first_seats[i] = size + 1
    if find(seat, ' ', 1, true) then
      add_words(bits, row.bits, size + 10000)
      add_words(seats, seat, #bits)
      size = #seats
    else
      size = size + 1
      seats[size] = seat
      bits[size] = row.bits
    end
    if bits[size + 1] or not bits[size] or not inbox_at(row.inbox) then
      local refusal = 'PSARGS commit: a claim names no inbox, or not one bit for each slot'
      return redis.error_reply(refusal)
    end
    local equal = find(text, '=', 1, true) -- the '=' of inc=N; a second '=' belongs to an amount
    if equal and find(text, '=', equal + 1, true) then
      nodes[i] = string.match(seat, '^([^ /]*)/')
    end
  end
  first_seats[count + 1] = size + 1
  return nil, seats, bits, first_seats, nodes
end

-- held_text: return the text of a claim with the held amounts ('gpu@1=1') in the place of the
-- amounts that the claim asks for ('gpu=1').
local function held_text(text, held_amounts)
  return string.match(text, '^.- inc=%d+%f[%D]') .. ' ' .. held_amounts
end

-- held_since: return since when (ms) a claim has this lease with devices, and the amounts of the
-- lease. Return nil if the lease belongs to another claim.
local function held_since(lease, text)
  local head = (string.match(text, '^.- inc=%d+%f[%D]') or '') .. ' '
  if string.sub(lease, 1, #head) ~= head then
    return nil
  end
  local held_amounts, since = string.match(lease, '^(.*) since=(%d+)$', #head + 1)
  if not held_amounts or not string.find(held_amounts, '@', 1, true) then
    return nil
  end
  return since .. ' ' .. held_amounts
end
