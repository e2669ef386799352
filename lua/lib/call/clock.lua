local NOW -- a script is of one moment

-- now_ms: return the server's time in milliseconds, as a decimal string.
local function now_ms()
  if NOW then return NOW end
  local t = redis.call('TIME') -- seconds and microseconds
  NOW = t[1] .. string.sub('00000' .. t[2], -6, -4)
  return NOW
end

-- after_ms: return the time `delay_ms` later, nil for a delay of ''.
local function after_ms(now, delay_ms)
  return delay_ms ~= '' and string.format('%d', now + delay_ms) or nil
end

-- is_past: return whether an expiry (ms, or nil for none) has come.
local function is_past(due, now)
  local at = due and tonumber(due)
  return at and at <= tonumber(now)
end
