"""The Lua scripts as Python sees them: the loader, the headers, and a call for each verb."""
