-- The time of a script. All calls of now_ms in one run of a script return the same time.
local NOW

-- now_ms: return the server's time in milliseconds, as a decimal string.
local function now_ms()
  if NOW then
    return NOW
  end
  local time = redis.call('TIME') -- seconds and microseconds
  NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
  return NOW
end

-- after_ms: return the time `delay_ms` after `now`; nil for a delay of ''.
local function after_ms(now, delay_ms)
  return delay_ms ~= '' and string.format('%d', now + delay_ms) or nil
end

-- is_past: return whether a moment (ms, or nil for none) has come.
local function is_past(moment, now)
  local moment_ms = moment and tonumber(moment)
  return moment_ms and moment_ms <= tonumber(now)
end
