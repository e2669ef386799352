-- luacheck of the scripts as they are sent (tests/kit/lua_lint.py): with their libraries, and with the locals that the loader makes of
-- the header. So no name is excused. The globals are those that Redis gives to a script, as far as we use them.
std = 'none'
read_globals = {'KEYS', 'ARGV', 'error', 'ipairs', 'next', 'pairs', 'tonumber', 'tostring', 'type', 'unpack',
  math = {fields = {'abs', 'ceil', 'floor', 'huge', 'max', 'min'}},
  redis = {fields = {'call', 'pcall', 'error_reply', 'log', 'LOG_WARNING'}},
  string = {fields = {'byte', 'find', 'format', 'gmatch', 'gsub', 'match', 'sub'}},
  table = {fields = {'concat', 'insert', 'remove', 'sort'}}}
max_line_length = false -- that of the sources is tested; these have places in ARGV for names
-- a library's table may be unused: the loader leaves out only functions that nothing calls; what in_full() makes may be the
-- same functions as those outside
ignore = {'211/[A-Z_]+', '241/[A-Z_]+', '431/[a-z_]+'}
