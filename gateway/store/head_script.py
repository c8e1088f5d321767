"""The one script that moves a head: compare, store the snapshot, write the history, ring; all or nothing."""

from __future__ import annotations

MAX_CHANGES = 10_000
"""Bound of a history. A snapshot goes with the last change that leads to it."""

MOVED, MOVED_BEFORE, CONFLICT = 1, 2, 0

MOVE_HEAD = """
-- KEYS  1 head  2 history  3 snapshots  4 the new snapshot  5 bell
-- ARGV  1 expected number  2 expected sha  3 new sha  4 its content  5 the change's own id
--       6 most changes  7 prefix of snapshots' keys  8 ... fields of the change
local number = redis.call('HGET', KEYS[1], 'number') or '0'
local sha = redis.call('HGET', KEYS[1], 'sha') or ''
local new = string.format('%d', tonumber(ARGV[1]) + 1)
if number ~= ARGV[1] or sha ~= ARGV[2] then
  -- The answer to an earlier try may have been lost: then the change stands right after the expected head.
  local mine = redis.call('XRANGE', KEYS[2], new .. '-0', new .. '-0')
  if mine[1] and mine[1][2][2] == ARGV[5] then
    return {2, new, ARGV[3]}
  end
  return {0, number, sha}
end
redis.call('SET', KEYS[4], ARGV[4])
redis.call('HINCRBY', KEYS[3], ARGV[3], 1)
local change = {'id', ARGV[5], 'from', ARGV[2], 'to', ARGV[3]}
for index = 8, #ARGV do
  change[#change + 1] = ARGV[index]
end
redis.call('XADD', KEYS[2], new .. '-0', unpack(change))
redis.call('HSET', KEYS[1], 'number', new, 'sha', ARGV[3])
while redis.call('XLEN', KEYS[2]) > tonumber(ARGV[6]) do
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', KEYS[2], oldest[1])
  local gone = oldest[2][6]
  if redis.call('HINCRBY', KEYS[3], gone, -1) <= 0 then
    redis.call('HDEL', KEYS[3], gone)
    redis.call('DEL', ARGV[7] .. gone)
  end
end
redis.call('PUBLISH', KEYS[5], '')
return {1, new, ARGV[3]}
"""
