-- Read the rows of commit into lists.

-- add_words: append the words of a text to a list; most texts are one. Stop behind entry `most`, which no sound call has.
local function add_words(list, text, most)
  if not string.find(text, ' ', 1, true) then
    list[#list + 1] = text
  else
    for word in string.gmatch(text, '%S+') do
      list[#list + 1] = word
      if #list > most then break end
    end
  end
end

-- read_claims: return nil, the seats and the bits of all claims, at which of them each claim begins (and the end), and the nodes
-- of those that ask amounts; or the error reply for a claim that is not well formed.
local function read_claims()
  local find, seats, bits, first, names, n = string.find, {}, {}, {}, {}, 0
  for i, row in rows() do
    local seat, text = row.seats, row.text
    first[i] = n + 1
    if find(seat, ' ', 1, true) then
      add_words(bits, row.bits, n + 10000)
      add_words(seats, seat, #bits)
      n = #seats
    else
      n = n + 1
      seats[n], bits[n] = seat, row.bits
    end
    if bits[n + 1] or not bits[n] or not inbox_at(row.inbox) then
      return redis.error_reply('PSARGS commit: a claim names no inbox, or not one bit for each slot')
    end
    local equal = find(text, '=', 1, true) -- that of inc; amounts have more
    if equal and find(text, '=', equal + 1, true) then names[i] = string.match(seat, '^([^ /]*)/') end
  end
  first[count + 1] = n + 1
  return nil, seats, bits, first, names
end

-- held_text: return the text of a claim, with the amounts that it holds in the place of those that it asks.
local function held_text(text, held) return string.match(text, '^.- inc=%d+%f[%D]') .. ' ' .. held end

-- held_since: return since when a lease with devices is the one of this claim, and its amounts; nil for another lease.
local function held_since(lease, text)
  local head = (string.match(text, '^.- inc=%d+%f[%D]') or '') .. ' '
  local held, since = string.match(lease, '^(.*) since=(%d+)$', #head + 1)
  if string.sub(lease, 1, #head) ~= head or not held or not string.find(held, '@', 1, true) then return nil end
  return since .. ' ' .. held
end
