"""The two scripts of a key's limits. Each works by the server's clock, so that gateways need not agree.

KEYS  1 buckets  2 turns. A limit of 0 is none. An answer's numbers are texts: Lua's become integers.
"""

from __future__ import annotations

_LEVEL = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local at = tonumber(redis.call('HGET', KEYS[1], 'at') or now)
local function level(name, limit)
  local kept = tonumber(redis.call('HGET', KEYS[1], name) or limit)
  return math.min(limit, kept + math.max(0, now - at) * limit / 60)
end
local lifetime = 3600
local function keep(name, limit, left)
  redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now))
  if limit == 0 then
    redis.call('HDEL', KEYS[1], name)
  else
    redis.call('HSET', KEYS[1], name, string.format('%.6f', left))
    lifetime = math.max(lifetime, math.ceil((limit - left) * 60 / limit))
  end
  redis.call('EXPIRE', KEYS[1], lifetime)
end
"""

TAKE = (
    _LEVEL
    + """
-- ARGV  1 requests a minute  2 tokens a minute  3 turns at once  4 requests wanted  5 tokens wanted
--       6 the turn's lease, '' for none  7 the lease's seconds
--       8 tokens that are owed, and taken in any case, before anything else
-- Returns {what is short or '', requests left, tokens left}; where something is short nothing is taken.
local rpm, tpm, turns = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, tokens_wanted = tonumber(ARGV[4]), tonumber(ARGV[5])
local requests, tokens = level('requests', rpm), level('tokens', tpm) - tonumber(ARGV[8])
local short = ''
if rpm > 0 and requests < math.min(wanted, rpm) then short = 'requests' end
if short == '' and tpm > 0 and tokens < math.min(tokens_wanted, tpm) then short = 'tokens' end
if ARGV[6] ~= '' and turns > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if short == '' and redis.call('ZCARD', KEYS[2]) >= turns then short = 'turns' end
end
if short == '' then
  requests, tokens = requests - wanted, tokens - tokens_wanted
  if ARGV[6] ~= '' and turns > 0 then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[7]), ARGV[6])
    redis.call('EXPIRE', KEYS[2], 3600)
  end
end
keep('requests', rpm, requests)
keep('tokens', tpm, tokens)
return {short, string.format('%.6f', requests), string.format('%.6f', tokens)}
"""
)

SETTLE = (
    _LEVEL
    + """
-- ARGV  1 requests a minute  2 tokens a minute  3 tokens to take, negative to give back
--       4 seconds that the leases go on for, 0 to end them  5 ... leases
-- Returns {'', requests left, tokens left}.
local rpm, tpm = tonumber(ARGV[1]), tonumber(ARGV[2])
local requests = level('requests', rpm)
local tokens = math.min(tpm, level('tokens', tpm) - tonumber(ARGV[3]))
for index = 5, #ARGV do
  if tonumber(ARGV[4]) == 0 then
    redis.call('ZREM', KEYS[2], ARGV[index])
  else
    redis.call('ZADD', KEYS[2], 'XX', now + tonumber(ARGV[4]), ARGV[index])
    redis.call('EXPIRE', KEYS[2], 3600)
  end
end
keep('requests', rpm, requests)
keep('tokens', tpm, tokens)
return {'', string.format('%.6f', requests), string.format('%.6f', tokens)}
"""
)
