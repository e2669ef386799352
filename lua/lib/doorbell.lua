-- doorbell: the message that tells a node's worker to look at a lease. It is a Celery message as kombu's Redis transport
-- reads it; it carries no work, so that a lost or repeated one costs nothing. Ids are checked where they enter: no escapes.
local function doorbell(task, attempt, slots, inc, since)
  return '{"body":"","content-encoding":"utf-8","content-type":"application/json",'
    .. '"headers":{"task":"parsync.doorbell","id":"' .. task .. '","attempt":"' .. attempt .. '","slot":'
    .. string.match(slots, '^%d+') .. ',"slots":"' .. slots .. '","inc":' .. inc .. ',"since":' .. since .. '},'
    .. '"properties":{"delivery_tag":"' .. task .. '","delivery_info":{"exchange":"","routing_key":""}}}'
end
