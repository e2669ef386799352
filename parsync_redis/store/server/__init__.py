"""How a server is reached: connections, primaries, Sentinel, errors, and a server of one's own."""
